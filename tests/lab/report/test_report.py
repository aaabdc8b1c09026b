"""Reports: escaped, self-contained, and the tables in three formats."""

import re
from html.parser import HTMLParser

import pytest

from gatelab.errors import InputError, RunError
from gatelab.figures import Curve, Plot
from gatelab.lab import Claim, FigureFacts, Findings, Table
from gatelab.lab.experiment import Config, Experiment, SeededConfig, cell_per_run
from gatelab.lab.report import write_report
from gatelab.lab.report.drawings import files_of
from gatelab.lab.report.html import page
from gatelab.lab.report.tables import as_csv, as_latex, as_markdown, claims_table
from gatelab.lab.runs import Cell, Run
from gatelab.lab.verdicts import Sample, decided_together, greater, undecided, within
from gatelab.papers import find_experiment

EVIL = '<script>alert("x")</script> & co'
TABLE = Table(EVIL, ("name", "100 % | x"), (("a_b", "1.0 ± 0.1"), (EVIL, "2,5")), "note")
FINDINGS = Findings(
    EVIL,
    "The answer.",
    (TABLE,),
    (
        FigureFacts("First", Plot("x", EVIL, (Curve("one", (1.0, 2.0), (3.0, 4.0), (0.1, 0.1)),)), "caption"),
        FigureFacts("Second", Plot("x", "y", (Curve("two", (0.0, 1.0), (1.0, 2.0), line=True),), ticks=("a", "b")), ""),
    ),
    (Claim("c", within(0.0, 1.0, "e")), Claim("d", undecided("f"))),
    ("A note.",),
)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.links += [value for name, value in attributes if name in ("href", "src")]


def test_the_page_is_escaped_and_needs_nothing_else():
    content = page(FINDINGS, {"Configuration": {"model": EVIL}})
    tags = Tags()
    tags.feed(content)
    assert "script" not in tags.seen
    assert "alert(&#34;x&#34;)" in content
    assert not [link for link in tags.links if not link.startswith("#")]
    assert not re.search(r"""url\(['"]?(?!#)""", content)
    assert tags.seen.count("svg") == 2
    assert "Claims: 1 hold, 0 fail, 1 not decided" in content
    assert content.index("The answer.") < content.index("<svg") < content.index("<table")  # figures come first
    assert "#010203" not in content  # axes and text have the page's own colour
    assert "currentColor" in content


def test_a_phone_shows_a_plot_whole_and_keeps_units_with_their_numbers():
    plot = Plot("epoch", "loss", (Curve("", (0.0, 1.0), (1.0, 0.5), line=True),))
    found = Findings(
        "A study", "82 % of it.", figures=(FigureFacts("Loss", plot, "It falls by 50 %."),), notes=("3 %",)
    )
    content = page(found, {})
    assert '<div class="wide plain">' in content
    assert all(text in content for text in ("82\u00a0% of it.", "by 50\u00a0%.", "<li>3\u00a0%</li>"))


def test_figures_are_files_too():
    first = FINDINGS.figures[0]
    files = dict(files_of(first, "figures/figure-1"))
    assert list(files) == ["figures/figure-1.svg", "figures/figure-1.png"]
    assert files["figures/figure-1.png"].startswith(b"\x89PNG")
    assert b"<svg" in files["figures/figure-1.svg"]
    assert b"currentColor" not in files["figures/figure-1.svg"]  # black on white, wherever it is put
    assert files == dict(files_of(first, "figures/figure-1"))  # the same facts make the same files


def test_identifiers_of_figures_do_not_clash():
    found = re.findall(r'\bid="([^"]+)"', page(FINDINGS, {}))
    assert len(found) == len(set(found))
    used = set(re.findall(r'xlink:href="#([^"]+)"|url\(#([^)]+)\)', page(FINDINGS, {})))
    assert {name for pair in used for name in pair if name} <= set(found)


def test_tables_in_three_formats():
    assert as_csv(TABLE).splitlines()[1:] == ["a_b,1.0 ± 0.1", '"<script>alert(""x"")</script> & co","2,5"']
    assert as_markdown(TABLE).splitlines()[0] == r"| name | 100 % \| x |"
    assert r"a\_b & 1.0 $\pm$ 0.1 \\" in as_latex(TABLE)
    assert r"\& co" in as_latex(TABLE)


def test_claims_are_a_table_with_the_corrected_p_value():
    low, high = Sample((0.50, 0.51, 0.505)), Sample((0.60, 0.63, 0.585))
    near = Sample((0.501, 0.509, 0.507))
    claims = decided_together(
        [
            Claim("far", greater(high, low, paired=True)),
            Claim("near", greater(near, low, paired=True)),
            Claim("exact", within(3.14e-7, 1.0, "e")),
            Claim("never", undecided("f")),
        ],
        smoke=False,
    )
    far, close, exact, never = claims_table(claims).rows
    alone = greater(high, low, paired=True).p
    assert far[:2] == ("far", "holds")
    assert far[2:4] == ("10.00 points", "5.03 to 14.97")
    assert float(far[4]) == pytest.approx(2 * alone, rel=0.1)  # two tests are corrected together
    assert re.fullmatch(r"not decided \(about \d+ runs would decide\)", close[1])
    assert exact == ("exact", "holds", "3.1e-07", "", "exact")
    assert never == ("never", "not decided (f)", "", "", "")


def test_an_unfinished_run_has_no_report(tmp_path):
    run = Run.open(tmp_path / "run", "study", {"runs": 1, "epochs": 1})
    with pytest.raises(RunError, match=r"is not finished: setting, network, random"):
        write_report(run, find_experiment("study"))


def test_results_come_in_the_order_of_the_cells(tmp_path):
    """However a pool finished them."""
    config = type("Nothing", (Config,), {})
    cells = [Cell(name) for name in ("first", "second", "third")]
    experiment = Experiment(
        "ordered",
        "",
        config,
        {},
        lambda _config: cells,
        lambda *_: {},
        lambda _config, results: Findings(" ".join(results), ""),
    )
    run = Run.open(tmp_path / "run", "ordered", {})
    for name in ("third", "first", "second"):
        run.add_result(name, {}, 0.0)
    assert write_report(run, experiment)[1].title == "first second third"


def repeated(cells):
    def means(config, results):
        return Findings(f"{config.runs} runs: " + ", ".join(str(result["score"]) for result in results.values()), "")

    return Experiment("repeated", "", SeededConfig, {}, cells, lambda *_: {}, means)


def test_the_first_runs_can_be_concluded_before_the_others_are_finished(tmp_path):
    run, experiment = Run.open(tmp_path / "run", "repeated", {"runs": 3, "seed": 1}), repeated(cell_per_run)
    for number in (0, 1):
        run.add_result(f"run {number}", {"score": number}, 0.0)
    with pytest.raises(RunError, match="not finished: run 2 still to do"):
        write_report(run, experiment)
    findings = write_report(run, experiment, runs=2)[1]
    assert findings.title == "2 runs: 0, 1"
    assert findings.notes[0].startswith("Concluded from the first 2 of 3 runs")
    assert "first 2 of 3 runs" in (run.path / "report.html").read_text()
    with pytest.raises(RunError, match="not finished: run 2 still to do"):
        write_report(run, experiment, runs=3)
    with pytest.raises(InputError, match="started with 3 runs; ask for at most that many"):
        write_report(run, experiment, runs=4)


def test_runs_that_share_a_cell_cannot_be_concluded_apart(tmp_path):
    together = repeated(lambda config: [Cell("all", {"seeds": config.seeds()})])
    run = Run.open(tmp_path / "run", "repeated", {"runs": 3, "seed": 1})
    run.add_result("all", {"score": 0}, 0.0)
    with pytest.raises(InputError, match="trains all runs of a cell together"):
        write_report(run, together, runs=2)


def test_findings_that_fail_lose_no_cell_and_say_whose_fault_it_may_be(tmp_path):
    run = Run.open(tmp_path / "run", "repeated", {"runs": 1, "seed": 1})
    run.add_result("run 0", {}, 0.0)
    with pytest.raises(RunError, match=r"cannot conclude.*KeyError\('score'\).*cells are kept.*defect of gatelab"):
        write_report(run, repeated(cell_per_run))
    assert run.results() == {"run 0": {}}
