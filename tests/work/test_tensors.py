"""Safetensors with a checksum: readable by safetensors itself, and the same bytes for the same content."""

import pytest
import torch
from safetensors.torch import load_file, save

from gatelab.errors import RunError
from gatelab.work.tensors import read_tensors, write_tensors

TENSORS = {"a": torch.arange(5), "b": torch.zeros(3, dtype=torch.int8)}
ABOUT = {name: f"about {name}" for name in "vwxyz"}


def test_anybody_can_read_them(tmp_path):
    write_tensors(tmp_path / "file", save(TENSORS, ABOUT))
    tensors, about = read_tensors(tmp_path / "file")
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert all(torch.equal(tensor, TENSORS[name]) for name, tensor in load_file(tmp_path / "file").items())
    assert about.items() >= ABOUT.items()


def test_the_same_content_has_the_same_bytes(tmp_path):
    """safetensors orders its metadata by chance: of five entries, twenty tries agree with probability 120⁻¹⁹."""
    contents = set()
    for _ in range(20):
        write_tensors(tmp_path / "file", save(TENSORS, ABOUT))
        contents.add((tmp_path / "file").read_bytes())
    assert len(contents) == 1


def test_every_bit_counts(tmp_path):
    write_tensors(tmp_path / "file", save(TENSORS, ABOUT))
    content = (tmp_path / "file").read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        (tmp_path / "file").write_bytes(changed)
        with pytest.raises(RunError, match="file is damaged"):
            read_tensors(tmp_path / "file")
