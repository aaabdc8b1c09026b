"""Our side: a peer's process, asked for one round at a time."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.environment import ROOT, NotAvailableError

Environment = Callable[[], tuple[list[str], dict[str, str]]]


@dataclass(frozen=True)
class Measured:
    """One run of a peer.

    Attributes:
        seconds: by the clock.
        cpu: of all its threads.
        compiling: seconds before the first run; 0 where nothing is compiled.
    """

    seconds: float
    cpu: float
    compiling: float = 0.0


class Peer:
    """A process that computes the tangent kernel of a problem, in one of several ways, whenever it is asked."""

    def __init__(self, module: str, environment: Environment, model: nn.Sequential, x: Tensor):
        """Start it on the same number of threads as torch has here, and hand it the problem as a file."""
        command, variables = environment()
        threads = str(torch.get_num_threads())
        settings = {**os.environ, **variables, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        self._folder = tempfile.TemporaryDirectory()
        self._problem = Path(self._folder.name) / "problem.npz"
        np.savez(self._problem, x=x.numpy(), **{name: p.detach().numpy() for name, p in model.named_parameters()})
        self._errors = Path(self._folder.name, "errors").open("w+")  # noqa: SIM115  closed with the process
        self._process = subprocess.Popen(
            [*command, "-m", f"benchmarks.peers.{module}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=ROOT, env=settings,
        )  # fmt: skip

    def __enter__(self) -> "Peer":
        """Nothing more to do."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process and remove its files."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # a request that a dead process never read
            self._process.stdin.close()
        self._process.wait()
        self._errors.close()
        self._folder.cleanup()

    def prepare(self, way: str, examples: int) -> tuple[Measured, Tensor]:
        """Compile and run once on the first examples; the kernel that came out."""
        result = Path(self._folder.name) / f"{way}.npy"
        request = {"do": "prepare", "way": way, "problem": str(self._problem), "examples": examples}
        measured = self._ask({**request, "result": str(result)})
        return measured, torch.from_numpy(np.load(result))

    def round(self) -> Measured:
        """Run what was prepared once more."""
        return self._ask({"do": "round"})

    def _ask(self, request: dict[str, object]) -> Measured:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # the process ended; what it said last is in its errors
            print(json.dumps(request), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            last = self._errors.read().strip().splitlines()
            raise NotAvailableError(f"its process ended with {self._process.wait()}: {last[-1] if last else ''}")
        answer = json.loads(line)
        if "error" in answer:
            raise NotAvailableError(answer["error"])
        return Measured(**answer)
