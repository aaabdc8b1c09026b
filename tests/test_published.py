"""Published runs: their records are whole, and the pages show what the records give."""

import re
import shutil

import pytest
from tools import published

from gatelab.errors import GatelabError, InputError, RunError
from gatelab.lab.runs import Run, execute
from gatelab.lab.runs.verify import check_run
from gatelab.papers import find_experiment
from gatelab.work.checksums import Condition
from gatelab.work.progress import Silent

PAGES = sorted(published.RESULTS.glob("*.md"))
RECORDS = published.RUNS
NAMES = sorted(path.name for path in RECORDS.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_every_record_is_whole_and_shown(name):
    assert {part.condition for part in check_run(published.RUNS / name)} == {Condition.WHOLE}
    assert {file.name for file in (published.RUNS / name).iterdir()} == set(published.FILES)
    assert any(name in published.published(page.read_text(encoding="utf-8")) for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_show_what_the_records_give(page):
    text = page.read_text(encoding="utf-8")
    assert published.filled(text) == text, "run 'make results'"


def test_a_changed_digit_on_a_page_is_put_right():
    text = next(text for page in PAGES if published.published(text := page.read_text(encoding="utf-8")))
    block = re.search(r"<!-- published .*?<!-- end -->", text, re.DOTALL)[0]
    place = text.index(block) + re.search(r"\d\.\d\d", block).start()
    wrong = text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]
    assert wrong != text
    assert published.filled(wrong) == text


def _finished(folder):
    experiment = find_experiment("npk-figure5")
    config = experiment.configure("smoke", {})
    run = Run.open(folder, experiment.id, config.model_dump(mode="json"))
    execute(run, config, experiment.cells(config), experiment.work, Silent())
    return run


def test_a_run_is_taken_without_its_checkpoints(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RUNS", tmp_path / "runs")
    run = _finished(tmp_path / "run")
    taken = published.take(run.path, "spectrum")
    assert taken.results() == run.results()
    assert {file.name for file in taken.path.iterdir()} == set(published.FILES)
    assert published.findings("spectrum").figures


def test_a_run_with_a_changed_digit_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RUNS", tmp_path / "runs")
    run = _finished(tmp_path / "run")
    journal = run.path / "journal.jsonl"
    journal.write_text(re.sub(r"(\d)(?=\D*$)", lambda digit: str((int(digit[0]) + 1) % 10), journal.read_text()))
    with pytest.raises(RunError, match=r"cannot be published: journal\.jsonl line 1"):
        published.take(run.path, "spectrum")
    assert not (tmp_path / "runs").exists()


def test_a_cell_whose_files_are_still_needed_is_left_to_be_computed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RUNS", tmp_path / "runs")
    table = find_experiment("npk-table2")
    config = table.configure("quick", {"arch": "gconv"})
    run = Run.open(tmp_path / "run", table.id, config.model_dump(mode="json"))
    for cell in table.cells(config)[:4]:  # the first run, and of the second the network from which "fixed" takes gates
        run.add_result(cell.name, {"test_accuracy": [[0.5]]}, 1.0)
    assert [name for name in run.results() if name.startswith("relu")] == ["relu/0.002/0", "relu/0.002/1"]
    taken = published.take(run.path, "part")
    assert set(taken.results()) == {"relu/0.002/0", "fixed/0.002/0", "dnpfl/0.002/0"}


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """A folder of pages of its own, with one record."""
    monkeypatch.setattr(published, "RESULTS", tmp_path)
    monkeypatch.setattr(published, "RUNS", tmp_path / "runs")
    shutil.copytree(RECORDS / NAMES[0], tmp_path / "runs" / "known")
    return tmp_path


def _page(folder, name, comment):
    (folder / name).write_text(f"<!-- published {comment} -->\n<!-- end -->\n")
    return folder / name


@pytest.mark.parametrize("number", [0, 99])
def test_a_table_that_does_not_exist_is_named(number, pages):
    page = _page(pages, "page.md", f"known table {number}")
    before = page.read_text()
    with pytest.raises(InputError, match=rf"page\.md: known has no table {number}; it has \d+, counted from 1"):
        published.main()
    assert page.read_text() == before


def test_a_page_with_an_unknown_record_does_not_stop_the_others(pages):
    _page(pages, "a.md", "unknown table 1")
    page = _page(pages, "b.md", "known table 1")
    with pytest.raises(InputError, match=r"a\.md: .*unknown does not exist; correct the name"):
        published.main()
    assert "|" in page.read_text()


def test_a_run_is_taken_whatever_other_records_are_missing(pages, tmp_path):
    page = _page(pages, "page.md", "unknown table 1")
    page.write_text(page.read_text() + "<!-- published new claims -->\n<!-- end -->\n")
    published.main(str(_finished(tmp_path / "run").path), "new")
    unknown, new = page.read_text().split("<!-- end -->\n")[:2]
    assert unknown == "<!-- published unknown table 1 -->\n"
    assert "|" in new


def _without_experiment(folder):
    Run.open(folder, "nothing-of-the-kind", {})


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (lambda folder: folder.mkdir(), "is not a run of gatelab"),
        (lambda folder: (_finished(folder).path / "environment.json").unlink(), r"environment\.json damaged"),
        (lambda folder: (_started(folder) / "journal.jsonl").unlink(), r"it has no journal\.jsonl; name the directory"),
        (_without_experiment, "nothing-of-the-kind"),
    ],
    ids=["an empty directory", "no environment", "no journal", "an unknown experiment"],
)
def test_a_directory_that_is_no_run_leaves_nothing_behind(make, fault, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "RUNS", tmp_path / "runs")
    make(tmp_path / "run")
    with pytest.raises(GatelabError, match=fault):
        published.take(tmp_path / "run", "spectrum")
    assert not (tmp_path / "runs").exists()


def _started(folder):
    return Run.open(
        folder, "npk-figure5", find_experiment("npk-figure5").configure("smoke", {}).model_dump(mode="json")
    ).path


@pytest.mark.parametrize("arguments", [("run",), ("run", "../elsewhere"), ("run", "a", "b")])
def test_wrong_arguments_are_named(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"give DIR and NAME|cannot be the name of a record"):
        published.main(*arguments)
