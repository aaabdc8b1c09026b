"""Safetensors files with their checksum in the header."""

import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from gatelab.errors import RunError
from gatelab.work.checksums import BLANK, KEY, Condition, condition, sealed
from gatelab.work.files import read_file, reason, write_durably

_ABOUT = "__metadata__"
_SIZE = 8  # bytes that hold the length of the header
REMEDY = "run the same command with --redo-damaged to recompute the damaged parts"


def write_tensors(path: Path, content: bytes) -> None:
    """Write a file in the form of :func:`safetensors.torch.save` durably, with its checksum among its metadata."""
    size = int.from_bytes(content[:_SIZE], "little")
    header = json.loads(content[_SIZE : _SIZE + size])
    about = dict(sorted(header.pop(_ABOUT, {}).items()))  # safetensors leaves their order undefined
    header = {_ABOUT: {KEY: BLANK, **about}, **header}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _SIZE)  # like safetensors: tensors begin at a multiple of eight bytes
    start, digits, rest = sealed(b"".join((len(text).to_bytes(_SIZE, "little"), text, content[_SIZE + size :])))
    write_durably(path, start, digits, rest)


def read_tensors(
    path: Path, remedy: str = REMEDY, *, must_be_sealed: bool = False
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read the tensors of a file and its metadata.

    Args:
        path: the file.
        remedy: what the user can do if it is damaged.
        must_be_sealed: whether a file without a checksum counts as damaged.

    Raises:
        RunError: the file is missing, damaged, or not a safetensors file.
    """
    try:
        content = read_file(path)
        found = condition(content)
        if found is Condition.DAMAGED:
            raise ValueError("its content does not match its checksum")  # noqa: TRY301  one refusal for all faults
        if must_be_sealed and found is Condition.UNSEALED:
            raise ValueError("it has no checksum")  # noqa: TRY301
        tensors = load(content)
        header = json.loads(content[_SIZE : _SIZE + int.from_bytes(content[:_SIZE], "little")])
    except (OSError, ValueError, SafetensorError) as error:
        raise RunError(f"{path} is damaged: {reason(error)}; {remedy}") from error
    return tensors, header.get(_ABOUT, {})
