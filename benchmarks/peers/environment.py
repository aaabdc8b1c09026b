"""Makes the peers' environments under ``.bench-venv/``, once; says why if a peer cannot be installed."""

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".bench-venv"
HERE = Path(__file__).parent


class NotAvailableError(Exception):
    """A peer is not there; the message says why, in one line."""


def neural_tangents() -> tuple[list[str], dict[str, str]]:
    """A Python that has neural-tangents, and the environment variables that it needs."""
    folder, wanted = FOLDER / "neural-tangents", HERE / "requirements.txt"
    python = folder / "bin" / "python"
    if not _is_made(folder, wanted):
        _say("neural-tangents", folder)
        try:
            venv.create(folder, with_pip=True, clear=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotAvailableError(f"no virtual environment: {error}") from error
        _install(str(python), ["-r", str(wanted)])
        _mark(folder, wanted)
    return [str(python)], {}


def nngeometry() -> tuple[list[str], dict[str, str]]:
    """This Python, with nngeometry on its path."""
    folder, wanted = FOLDER / "nngeometry", HERE / "requirements-nngeometry.txt"
    if not _is_made(folder, wanted):
        _say("nngeometry", folder)
        _install(sys.executable, ["--target", str(folder), "--upgrade", "-r", str(wanted)])
        _mark(folder, wanted)
    return [sys.executable], {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def _install(python: str, arguments: list[str]) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise NotAvailableError(f"pip failed: {said[-1] if said else done.returncode}")


def _is_made(folder: Path, requirements: Path) -> bool:
    mark = folder / "made-from"
    return mark.exists() and mark.read_text() == _digest(requirements)


def _mark(folder: Path, requirements: Path) -> None:
    (folder / "made-from").write_text(_digest(requirements))


def _digest(requirements: Path) -> str:
    return hashlib.sha256(requirements.read_bytes()).hexdigest()


def _say(name: str, folder: Path) -> None:
    print(f"installing {name} into {folder.relative_to(ROOT)}", flush=True)
