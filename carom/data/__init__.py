"""Recordings: container, simulation, noise, windows, files."""

from carom.data.noise import add_noise
from carom.data.recording import Recording, Run
from carom.data.simulate import Truth, simulate
from carom.data.windows import Windows, cut_windows

__all__ = ["Recording", "Run", "Truth", "Windows", "add_noise", "cut_windows", "simulate"]
