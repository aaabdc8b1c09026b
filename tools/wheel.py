"""Build the source distribution and the wheel, and try the wheel where nothing else is installed. ``make wheel``."""

import hashlib
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TRIALS = (  # what a user types first; each must succeed in the empty environment
    ("gatelab",),
    ("gatelab", "doctor"),
    ("gatelab", "theorems", "npk-2.1"),
    ("python", "-c", "import gatelab as gl, torch; gl.neural_path_kernel(gl.models.mlp([3, 4, 1]), torch.randn(2, 3))"),
)


def build() -> tuple[Path, Path]:
    """Build both into dist/; the wheel is made from the source distribution."""
    _run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    (sdist,), (wheel,) = sorted(DIST.glob("gatelab-*.tar.gz")), sorted(DIST.glob("gatelab-*.whl"))
    return sdist, wheel


def contents(wheel: Path) -> dict[str, str]:
    """Return the digest of each file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: hashlib.sha256(archive.read(name)).hexdigest() for name in sorted(archive.namelist())}


def try_in_an_empty_environment(wheel: Path) -> None:
    """Install the wheel by pip alone and run what a user types first."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        binaries = Path(folder) / "bin"
        _run(binaries / "python", "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
        for command, *arguments in TRIALS:
            _run(binaries / command, *arguments, cwd=folder)


def _run(*command: str | Path, cwd: str | Path = ROOT) -> None:
    subprocess.run([str(part) for part in command], check=True, cwd=cwd, stdout=subprocess.DEVNULL)


def main() -> None:
    """Build, compare with a wheel made from the checkout itself, and try."""
    for old in DIST.glob("gatelab-*"):
        old.unlink()
    _, wheel = build()
    with tempfile.TemporaryDirectory() as folder:
        _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
        (direct,) = Path(folder).glob("*.whl")
        if contents(direct) != contents(wheel):
            raise SystemExit("the wheel from the source distribution differs from that of the checkout")
    try_in_an_empty_environment(wheel)
    print(f"{wheel.name}: built, the same from the source distribution, and tried in an empty environment")  # noqa: T201


if __name__ == "__main__":
    main()
