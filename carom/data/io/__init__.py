"""Recordings and system files on disk: formats, checks, and a sentence for everything that can be wrong."""

from carom.data.io.columns import Columns
from carom.data.io.recording_file import read_recording, write_recording
from carom.data.io.system_file import Learn, SystemFile, read_system_file, write_system_file

__all__ = [
    "Columns",
    "Learn",
    "SystemFile",
    "read_recording",
    "read_system_file",
    "write_recording",
    "write_system_file",
]
