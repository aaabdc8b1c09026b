"""The numbers that the playground's engine is tested against are still what the library computes."""

import json

import pytest
import torch
from tools.playground_golden import CASES, FOLDER, cases


def compare(expected, actual, where):
    """Numbers relative to the largest of their list, as in web/tests/golden.test.ts; anything else exactly."""
    if isinstance(expected, dict):
        assert expected.keys() == actual.keys(), where
        for key in expected:
            compare(expected[key], actual[key], f"{where}.{key}")
    elif isinstance(expected, list) and expected and isinstance(expected[0], dict):
        assert len(expected) == len(actual), where
        for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
            compare(one, other, f"{where}[{number}]")
    elif isinstance(expected, list | float):
        one, other = (torch.tensor(value, dtype=torch.float64) for value in (expected, actual))
        assert one.shape == other.shape, where
        scale = one.abs().max().item() if one.numel() else 0.0
        torch.testing.assert_close(other, one, rtol=0, atol=1e-9 * max(scale, 1e-12), msg=lambda m: f"{where}: {m}")
    else:
        assert expected == actual, where


def test_the_files_are_what_the_library_computes():
    names = []
    for name, case in cases():
        names.append(name)
        compare(json.loads((FOLDER / f"{name}.json").read_text()), json.loads(json.dumps(case)), name)
    assert sorted(f"{name}.json" for name in names) == sorted(path.name for path in FOLDER.iterdir())
    assert len(CASES) == 20


def test_the_comparison_can_fail():
    golden = json.loads((FOLDER / "relu-1.json").read_text())
    drifted = json.loads(json.dumps(golden))
    drifted["path_kernel"][2][3] *= 1 + 1e-6
    with pytest.raises(AssertionError, match="path_kernel"):
        compare(golden, drifted, "relu-1")
    drifted = json.loads(json.dumps(golden))
    drifted["paths"][1]["top"][0]["units"][0] ^= 1
    with pytest.raises(AssertionError, match="units"):
        compare(golden, drifted, "relu-1")
