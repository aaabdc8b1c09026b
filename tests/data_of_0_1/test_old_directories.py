"""Directories that version 0.1 made: this version opens them, reports on them, and continues them.

Both were made by 0.1 and stopped before the end: the run has one of two cells, the kernel five of six tiles.
"""

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from gatelab import cli
from gatelab.errors import StoreError
from gatelab.kernels import PathKernel, compute, neural_path_kernel, open_kernel
from gatelab.lab.runs import Run

HERE = Path(__file__).parent
ERRORS_OF_THE_SECOND_CELL = [0.4050161840084282, 0.3454836008398746, 0.43911012155550483, 0.174880462827135]  # by 0.1


def copy_of(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(HERE / name, folder / name))


def invoke(*arguments: object) -> str:
    answer = CliRunner().invoke(cli.app, list(map(str, arguments)))
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_a_run_of_0_1(tmp_path, single_precision):
    path = copy_of("run", tmp_path)
    assert "npk-theorem51  1 of 2 cells  2026-11-16T19:06:32+00:00" in invoke("runs", tmp_path)
    first = Run.read(path).results()
    invoke("run", "npk-theorem51", "--profile", "smoke", "--out", path)
    results = Run.read(path).results()
    assert results["w = 16"] == first["w = 16"]
    assert results["w = 64"]["errors"] == pytest.approx(ERRORS_OF_THE_SECOND_CELL, rel=1e-4)
    assert (path / "journal.jsonl").read_bytes().startswith((HERE / "run" / "journal.jsonl").read_bytes())
    assert invoke("report", path).splitlines()[-1] == f"report: {path / 'report.html'}"


def network() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.arange(parameter.numel(), dtype=torch.float64).reshape(parameter.shape).sin())
    return model


def test_a_kernel_of_0_1(tmp_path):
    path, model = copy_of("kernel.zarr", tmp_path), network()
    x = torch.arange(60, dtype=torch.float64).reshape(20, 3).cos()
    with pytest.raises(StoreError, match="is not finished: 1 of 6 tiles are missing"):
        open_kernel(path)
    assert compute(PathKernel(model), x, store=path).about["model"] == "99aa623d9af3c762"
    # Tiles of 0.1 next to a tile of this version. If they differ by more than rounding, raise engine.ARITHMETIC.
    torch.testing.assert_close(open_kernel(path).rows(slice(None)), neural_path_kernel(model, x), rtol=1e-12, atol=0)
    ledger = (path / "ledger.jsonl").read_text().splitlines()
    assert ledger[:5] == (HERE / "kernel.zarr" / "ledger.jsonl").read_text().splitlines()
    assert len(ledger) == 6
