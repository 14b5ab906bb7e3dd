"""A recording together with the system file that describes it."""

from pathlib import Path

from carom.data.io.recording_file import read_recording
from carom.data.io.system_file import SystemFile, read_system_file
from carom.data.io.tables import MAXIMUM_BYTES
from carom.data.recording import Recording
from carom.storage.input_file import complaint, require_file


def read_described(path: Path, system: Path | None = None) -> tuple[Recording, SystemFile]:
    """Read a recording as its system file has it.

    Arguments:
        path: a `.csv`, `.parquet` or `.npz` file.
        system: its system file, by default the `.toml` beside it.
    """
    require_file(path, maximum_bytes=MAXIMUM_BYTES, kind="recording")
    beside = path.with_suffix(".toml")
    if system is None and not beside.exists():
        problem = (
            f"there is no system file {beside} beside it; write one with `carom init`, or name one with "
        )
        raise complaint(path, problem + "--system")
    description = read_system_file(system or beside)
    recording = read_recording(
        path,
        columns=description.columns,
        scene=description.scene,
        step_size=description.step_size,
        missing=description.missing,
    )
    return recording, description
