"""Recordings with their system files, as commands name them."""

from pathlib import Path

from carom.data import Recording, SystemFile, read_recording, read_system_file
from carom.data.files.input_file import require_file
from carom.data.files.tables import MAXIMUM_BYTES
from carom.errors import InputError


def beside(recording: Path, system: Path | None) -> Path:
    """The system file that is named, or the one beside the recording with the same name and .toml."""
    return system or recording.with_suffix(".toml")


def read_described(recording: Path, system: Path | None) -> tuple[Recording, SystemFile]:
    """A recording and its system file, by default the one beside it."""
    require_file(recording, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    system_path = beside(recording, system)
    if system is None and not system_path.exists():
        raise InputError(
            f"{recording}: there is no system file {system_path} beside it; name one with --system."
        )
    description = read_system_file(system_path)
    data = read_recording(
        recording,
        columns=description.columns,
        scene=description.scene,
        step_size=description.step_size,
        missing=description.missing,
    )
    return data, description
