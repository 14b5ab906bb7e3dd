"""Recordings: container, simulation, noise, held-out parts, files."""

from carom.data.camera import Camera, film, film_motions, read_camera
from carom.data.io.columns import Columns
from carom.data.io.recording_file import read_recording, write_recording
from carom.data.io.system_file import (
    Comments,
    SystemFile,
    read_described,
    read_system_file,
    write_system_file,
)
from carom.data.recording import Recording, Run
from carom.data.simulate import Truth, add_noise, disturb_touch, simulate
from carom.data.split import HeldOut, Split, hold_out
