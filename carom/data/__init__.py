"""Recordings: container, simulation, noise, windows, files."""

from carom.data.files import (
    Columns,
    Learn,
    SystemFile,
    read_recording,
    read_system_file,
    write_recording,
    write_system_file,
)
from carom.data.noise import add_noise, disturb_touch
from carom.data.recording import Recording, Run
from carom.data.simulate import Truth, simulate
from carom.data.splitting import HeldOut, Split, hold_out
from carom.data.windows import Windows, cut_windows

__all__ = [
    "Columns",
    "HeldOut",
    "Learn",
    "Recording",
    "Run",
    "Split",
    "SystemFile",
    "Truth",
    "Windows",
    "add_noise",
    "cut_windows",
    "disturb_touch",
    "hold_out",
    "read_recording",
    "read_system_file",
    "simulate",
    "write_recording",
    "write_system_file",
]
