"""Files that a crash leaves whole."""

import json
import os
from pathlib import Path
from typing import Any

from gatelab.errors import RunError


def write_durably(path: Path, content: bytes) -> None:
    """Write a file so that after a crash there is the old one or the new one, never a part."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise RunError(
            f"{path} could not be written: {error.strerror or error}; what was finished is kept. Make room and run the "
            "same command again"
        ) from error


def write_json(path: Path, content: Any) -> None:
    """Write JSON that people may read, durably."""
    write_durably(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
