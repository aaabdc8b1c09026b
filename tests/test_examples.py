"""The notebooks in examples/ are those of their scripts, ran without an error, and are small."""

import nbformat
import pytest
from tools import notebooks

SCRIPTS = sorted(notebooks.EXAMPLES.glob("*.py"))
LARGEST = 600_000  # bytes: a notebook travels with the repository


def test_there_are_examples():
    assert len(SCRIPTS) >= 5


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_is_that_of_its_script(script):
    book = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    made = notebooks.notebook_of(script.read_text(encoding="utf-8"))
    assert [(cell.cell_type, cell.source) for cell in book.cells] == [
        (cell.cell_type, cell.source) for cell in made.cells
    ], "run `make notebooks`"
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any(output.output_type == "stream" for output in outputs)
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert script.with_suffix(".ipynb").stat().st_size < LARGEST


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_runs(script):
    book = notebooks.run(script)
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in shown if output.get("name") == "stderr"]
