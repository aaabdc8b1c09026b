"""``gatelab`` without a command, ``gatelab doctor`` and ``gatelab explain``: what to do next, and what is wrong."""

import inspect
import os
import platform
import shutil
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from gatelab import __version__
from gatelab.cli.app import app

NEXT = f"""gatelab {__version__}: what do the gates of a ReLU network know?

  gatelab study                              a small network on digits, under a minute: how much is in its gates?
  gatelab study net.py:Net --data mnist      the same question of your network
  gatelab playground                         gates, paths and regions in your browser: train, freeze, inspect
  gatelab explore net.py:Net --data mnist    one page about your network: gates, paths on the image, kernels, regions
  gatelab theorems                           every theorem of the papers, measured
  gatelab experiments                        the papers' tables and figures; 'gatelab run ID' makes one
  gatelab kernel net.py:Net mnist -o K.zarr  the path kernel of any number of examples
  gatelab doctor                             versions, threads, memory, data: for a bug report
  gatelab explain InputError                 what an error means, and what to do

'gatelab --help' lists all commands, 'gatelab COMMAND --help' explains one."""

LIBRARIES = ("torch", "numpy", "scipy", "numba", "scikit-learn", "matplotlib", "zarr", "pydantic")
OPTIONAL = ("dask", "pandas", "lightning", "tensorboard")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "firefox")


@app.command()
def doctor() -> None:
    """Print what a bug report needs: versions, threads, memory, disk, browser, and the data sets found."""
    import psutil
    import torch

    from gatelab.cli.data import where_data_are

    memory = psutil.virtual_memory()
    browser = next((name for name in BROWSERS if shutil.which(name)), "none found; any browser opens a report")
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "none"
    rows = {
        "gatelab": f"{__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        "libraries": ", ".join(f"{name} {metadata.version(name)}" for name in LIBRARIES),
        "optional": ", ".join(f"{name} {_version(name)}" for name in OPTIONAL),
        "processor": f"{os.cpu_count()} cores, {torch.get_num_threads()} threads for torch, accelerator: {accelerator}",
        "memory": f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free",
        "disk": f"{shutil.disk_usage(Path.cwd()).free / 2**30:.1f} GiB free in this folder",
        "browser": browser,
    }
    width = max(map(len, rows))
    for name, text in rows.items():
        typer.echo(f"{name:<{width}}  {text}")
    typer.echo("\ndata sets")
    for line in where_data_are(None):
        typer.echo(f"  {line}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="ERROR", help="The name of an error, such as InputError.")],
) -> None:
    """Explain an error of gatelab: its meaning, common causes and remedies."""
    from gatelab import errors

    known = {key: held for key, held in vars(errors).items() if inspect.isclass(held)}
    if name not in known:
        raise errors.InputError(f"there is no error '{name}'; gatelab's errors are {', '.join(known)}")
    typer.echo(f"{name}\n\n{inspect.getdoc(known[name])}")
