"""Dask's own commands as processes on this machine, all of which end with the test."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Processes:
    """Schedulers and workers; a context that leaves none of them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._all: list[subprocess.Popen] = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self._all:
            self.kill(process)

    def scheduler(self, port: int | None = None) -> tuple[subprocess.Popen, str]:
        """A scheduler and its address; it need not answer yet."""
        port = port or free_port()
        options = ["--host", "127.0.0.1", "--port", str(port), "--no-show", "--dashboard-address", ":0"]
        return self._start("distributed.cli.dask_scheduler", options), f"tcp://127.0.0.1:{port}"

    def worker(self, address: str, name: str, threads: int = 1, path: list[Path] | None = None) -> subprocess.Popen:
        """A worker that joins soon; ``path`` is searched for modules before anything else."""
        options = [address, "--no-nanny", "--nthreads", str(threads), "--name", name, "--no-dashboard"]
        where = ["--host", "127.0.0.1", "--local-directory", str(self.folder / "dask"), "--memory-limit", "0"]
        return self._start("distributed.cli.dask_worker", [*options, *where], path or [])

    def kill(self, process: subprocess.Popen) -> None:
        """End a process and what it started, without a word."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)

    def _start(self, module: str, options: list[str], path: list[Path] | None = None) -> subprocess.Popen:
        search = os.pathsep.join(map(str, [*(path or []), ROOT / "src", ROOT]))
        environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "default"}
        command = [sys.executable, "-m", module, *options]
        with (self.folder / "processes.log").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        self._all.append(process)
        return process


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
