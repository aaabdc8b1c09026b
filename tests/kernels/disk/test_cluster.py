"""Kernels on many machines: real workers, some of which are killed, and the bits of a single process."""

import subprocess
import sys
import time

import pytest
import torch

from gatelab.kernels import TangentKernel, compute, open_kernel
from gatelab.models.from_file import factory_from_file, seeded_network
from gatelab.work import Here, connect
from gatelab.work.progress import Silent
from tests.work.processes import ROOT, Processes

pytest.importorskip("distributed")

MODEL = """
import time
import torch
from torch import nn

class Slow(nn.Module):
    '''A user's own class, which is on no worker's path, and gives time to kill.'''

    def __init__(self):
        super().__init__()
        self.first, self.relu, self.last = nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 2)

    def forward(self, x):
        time.sleep(0.02)
        return self.last(self.relu(self.first(x)))
"""


@pytest.fixture
def network(tmp_path):
    (tmp_path / "mine.py").write_text(MODEL)
    return seeded_network(factory_from_file(f"{tmp_path / 'mine.py'}:Slow"), 0).float()


class KillAfter(Silent):
    """Kills a worker when some tiles are there, and starts another."""

    def __init__(self, processes, address, victims):
        self.processes, self.address, self.victims = processes, address, victims
        self.killed = 0

    def update(self, part, fraction, text):
        if text.startswith(("3 of", "7 of")):
            self.processes.kill(self.victims[self.killed])
            self.killed += 1
            self.processes.worker(self.address, f"replacement {self.killed}")


@pytest.mark.slow
def test_workers_that_are_killed_change_nothing(network, tmp_path):
    x = torch.randn(200, 6, dtype=torch.float32)
    calm = compute(TangentKernel(network), x, store=tmp_path / "calm.zarr", executor=Here(2))
    with Processes(tmp_path) as processes:
        _, address = processes.scheduler()
        workers = [processes.worker(address, name) for name in ("one", "two")]
        progress = KillAfter(processes, address, workers)
        with connect(address, timeout=100, notify=lambda _: None) as executor:
            deadline = time.monotonic() + 100
            while executor.parallel < 2 and time.monotonic() < deadline:
                time.sleep(0.1)
            shared = compute(TangentKernel(network), x, store=tmp_path / "K.zarr", executor=executor, progress=progress)
    assert progress.killed == 2
    assert shared._layout == calm._layout
    assert shared[:, :].tobytes() == calm[:, :].tobytes()
    # Nothing was written twice: one line for each tile.
    assert len((tmp_path / "K.zarr" / "ledger.jsonl").read_text().splitlines()) == shared._layout.count


@pytest.mark.slow
def test_the_command_with_a_cluster_of_its_own(network, tmp_path):
    base = [sys.executable, "-m", "gatelab", "kernel", str(tmp_path / "mine.py") + ":Slow", str(tmp_path / "x.npy")]
    import numpy as np

    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(100, 6)))
    for name, options in (("here", []), ("there", ["--cluster", "local:2"])):
        command = [*base, "--kind", "ntk", "-o", str(tmp_path / name), *options]
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200)
        assert answer.returncode == 0, answer.stderr
    assert open_kernel(tmp_path / "there")[:, :].tobytes() == open_kernel(tmp_path / "here")[:, :].tobytes()
