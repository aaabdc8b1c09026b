"""The diagnosis of trained networks as findings: tables, images, claims."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from scipy.stats import t as student_t

from gatelab.figures import Heatmap, Panels
from gatelab.hierarchy.cells import Gap
from gatelab.hierarchy.layer_sums import GROUPS
from gatelab.hierarchy.projection_tracker import projection_plot
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Result
from gatelab.lab.verdicts import Claim, Sample, Verdict, all_of, below, greater, readable, within
from gatelab.papers.common import dots, figure, findings, numbers

_NAMES = {
    "focus": "focus",
    "broadness": "broadness",
    "activations": "decorrelation, f",
    "gradients": "decorrelation, g",
    "forward": "error of f(z)",
    "backward": "error of g(z)",
}
_TOLERANCE = 0.1


def cnn_findings(results: Sequence[Result]) -> Findings:
    """Combine the findings of all runs; the images are from the first."""
    trained, start = ([own[stage]["layers"] for own in results] for stage in ("trained", "start"))
    first = results[0]
    loaded = bool(first["loaded"])
    after, before = ("with your weights", "with newly drawn weights") if loaded else ("after training", "at the start")
    worst = max(
        ((numbers(own[i][gap][0] for own in trained).mean, gap, layer["layer"])
         for i, layer in enumerate(trained[0]) for gap in list(_NAMES)[:4] if layer[gap] is not None),
    )  # fmt: skip
    errors, below_top = (
        [numbers(own[i][what][0] for own in trained) for i in range(len(trained[0]) - (what == "backward"))]
        for what in ("forward", "backward")
    )
    return findings(
        f"hierarchy on {first['data']}: where the assumptions break in a trained network",
        f"Eq. 7 misses the true means f(z) by {readable(min(e.mean for e in errors))} to "
        f"{readable(max(e.mean for e in errors))} of their length, g(z) by "
        f"{readable(min(e.mean for e in below_top))} to {readable(max(e.mean for e in below_top))}. "
        f"The assumption that breaks most is {_NAMES[worst[1]]} at layer {worst[2]} ({worst[0]:.2f}).",
        _gaps_table(after, trained),
        _gaps_table(before, start),
        _information(trained),
        _nodes(results),
        _labels(first),
        *_figures(results, trained),
        *_claims(results, trained, start),
        *first["trained"]["words"],
        _accuracy(results),
        "All gaps are relative to the RMS of the true means given z, and corrected for sampling noise: 1 means that an "
        "assumption is as wrong as the mean is large. The sentences above are about run 0, with 95 % intervals over "
        "examples.",
        'All claims are ours: the paper calls its assumptions "practically reasonable" and prints no numbers.',
    )


def _accuracy(results: Sequence[Result]) -> str:
    teacher, *student = (
        numbers(100 * own["accuracy"][place] for own in results).text() for place in range(len(results[0]["accuracy"]))
    )
    if student:
        return f"Accuracy on the test data: {teacher} % (teacher), {student[0]} % (student)."
    return (
        f"Accuracy of your weights on the test data: {teacher} %. The network was not trained here; newly drawn "
        "weights come from its factory with the seed of the run, not from the start of your training."
    )


def _layers(rows: Sequence[list[dict[str, Any]]], name: str, index: int) -> Sample | None:
    values = [own[index][name] for own in rows]
    if any(value is None for value in values):
        return None
    return numbers(value[0] if isinstance(value, list) else value for value in values)


def _text(sample: Sample | None) -> str:
    return "–" if sample is None else sample.text()


def _gap_text(rows: Sequence[list[dict[str, Any]]], name: str, index: int) -> str:
    """Return the mean over runs; for a single run, the value with its interval over examples."""
    value = rows[0][index][name]
    if len(rows) > 1 or value is None:
        return _text(_layers(rows, name, index))
    return str(Gap(*value)).replace(" to ", "–")


def _gaps_table(when: str, rows: Sequence[list[dict[str, Any]]]) -> Table:
    cells = [
        (layer["layer"], *(_gap_text(rows, name, index) for name in _NAMES)) for index, layer in enumerate(rows[0])
    ]
    return Table(
        f"Theorem 2's assumptions {when}, layer by layer",
        ("layer", *_NAMES.values()),
        tuple(cells),
        "0 means that the assumption holds; "
        + (f"± over {len(rows)} runs." if len(rows) > 1 else "95 % intervals over examples."),
    )


def _information(rows: Sequence[list[dict[str, Any]]]) -> Table:
    names = ("bits", "variance", "label_bits")
    cells = [
        (layer["layer"], str(layer["nodes"]), str(layer["values"]), *(_text(_layers(rows, n, i)) for n in names))
        for i, layer in enumerate(rows[0])
    ]
    columns = ("layer", "nodes", "values of z", "bits in z", "variance of f in z", "bits about the label")
    return Table("What z keeps", columns, tuple(cells), "Means over regions.")


def _nodes(results: Sequence[Result]) -> Table:
    stages = tuple(stage for stage in ("start", "trained", "student at the start", "student") if stage in results[0])
    count = len(results[0]["trained"]["layers"]) - 1
    cells = []
    for index in range(count):
        rows = {stage: [own[stage]["layers"] for own in results] for stage in stages}
        cells.append(
            (
                rows["trained"][0][index]["layer"],
                *(_text(_layers(rows[stage], "label_selectivity", index)) for stage in stages[:2]),
                *(_text(_layers(rows[stage], "selectivity", index)) for stage in stages[1:]),
                *(_text(_layers(rows["trained"], name, index)) for name in ("definition", "share")),
            )
        )
    seen = ("z: own", "z: student, start", "z: student, trained")[: len(stages) - 1]
    return Table(
        "What nodes are selective to",
        ("layer", "labels, start", "labels, trained", *seen, "Def. 3", "share of Var f"),
        tuple(cells),
        "Mean over nodes of the largest correlation with a label, or with an event of the teacher's z. Disentanglement "
        "needs binary factors: codes=sign pattern.",
    )


def _labels(first: Result) -> Table:
    """Show the nodes most correlated with a label, and the images that excite them."""
    rows, count = [], len(first["patches"][0]["labels"][0])
    for patches in first["patches"]:
        seen = zip(patches["nodes"], patches["correlations"], patches["labels"], strict=True)
        for node, correlation, labels in list(seen)[:3]:
            name, _, label = node.partition("\n")
            often = ", ".join(f"{label} ({count})" for label, count in Counter(labels).most_common(2))
            rows.append((patches["layer"], name.removeprefix("node "), label, f"{correlation:+.2f}", often))
    return Table(
        "The nodes that know most about a label",
        ("layer", "node", "label", "correlation", f"of the {count} images that excite it most (how many)"),
        tuple(rows),
        "Of run 0; the figures show these images.",
    )


def _figures(results: Sequence[Result], trained: Sequence[Any]) -> list[FigureFacts]:
    places = [float(i) for i in range(len(trained[0]))]
    names = tuple(layer["layer"] for layer in trained[0])
    curves = []
    for gap in list(_NAMES)[:4]:
        samples = [(place, _layers(trained, gap, index)) for index, place in enumerate(places)]
        known = [(place, sample.mean) for place, sample in samples if sample is not None]
        curves.append(dots(_NAMES[gap], [place for place, _ in known], [value for _, value in known]))
    shown = [
        figure(
            "Where the assumptions break",
            "layer",
            "gap, relative to the means",
            curves,
            "Means over runs." if len(trained) > 1 else "One network; the table has the intervals.",
            ticks=names,
        )
    ]
    for patches in results[0]["patches"]:
        panels = tuple(
            Heatmap("", tuple(map(tuple, image)), 0.0, 1.0, scale=None) for row in patches["images"] for image in row
        )
        shown.append(
            FigureFacts(
                f"Layer {patches['layer']}: what excites its nodes",
                Panels(panels, len(patches["images"][0]), tuple(patches["nodes"])),
                "The places in run 0's data that excite a node most, one for each image, cut to its receptive field, "
                "colours averaged. At the left the node and the label that it is most correlated with; the largest "
                "correlations come first.",
            )
        )
    shares = {epoch: seen["shares"] for epoch, seen in enumerate(results[0]["normalisation"])}
    if shares[0]:
        shown.append(
            FigureFacts(
                "What batch norm removes of the gradient",
                projection_plot(shares, "epoch"),
                f"Run 0, a batch of 256, mean over channels: from {min(shares[0]):.1e} to {max(shares[0]):.1e} at the "
                f"start, {min(shares[max(shares)]):.1e} to {max(shares[max(shares)]):.1e} at the end. A channel "
                "is a vector over examples and positions; of v entries two directions hold 2/v by chance.",
            )
        )
    return shown


def _claims(results: Sequence[Result], trained: Sequence[Any], start: Sequence[Any]) -> list[Claim]:
    count = len(trained[0])
    forward = [[numbers(own[i]["forward"][0] for own in rows) for i in range(count)] for rows in (start, trained)]
    means = [
        numbers(sum(own[i]["forward"][0] for i in range(count)) / count for own in rows) for rows in (start, trained)
    ]
    normalised = results[0]["normalisation"][0]["shares"]
    hidden = range(count - 1)

    def mean(stage: str, what: str) -> Sample:
        return numbers(sum(own[stage]["layers"][i][what] for i in hidden) / len(hidden) for own in results)

    residual = max(seen["residual"] for own in results for seen in own["normalisation"])
    reasonable = f"The assumptions are practically reasonable: f(z) within {_TOLERANCE:.0%} at every layer"
    exact = Claim(
        "What comes back through batch norm is (c₁/σ) P^⊥ g (Thm. 5)",
        within(residual, 1e-8, "autograd against the formula, relative:"),
    )
    if results[0]["loaded"]:  # one network, whose start is unknown
        of_layers = [_small(Gap(*layer["forward"]), layer["layer"]) for layer in trained[0]]
        return [Claim(reasonable, all_of(of_layers)), *([exact] if normalised else [])]
    claims = [
        Claim(reasonable, all_of([below(sample, _TOLERANCE) for sample in forward[1]])),
        Claim("Training brings f(z) nearer to Eq. 7", greater(means[0], means[1], paired=True)),
        Claim(
            "Training makes nodes selective to labels",
            greater(mean("trained", "label_selectivity"), mean("start", "label_selectivity"), paired=True),
        ),
    ]
    goal = "Another network's nodes become selective to this teacher's events (the paper's goal)"
    before, after = (mean(stage, "selectivity") for stage in ("student at the start", "student"))
    claims.append(Claim(goal, greater(after, before, paired=True)))
    return [*claims, exact] if normalised else claims


def _small(gap: Gap, layer: str) -> Verdict:
    """Decide whether one network's error is below the tolerance, by the jackknife over groups of examples."""
    degrees = GROUPS - 1
    # The jackknife works on squares; there its interval is symmetric, unless it was cut at 0.
    half = max(gap.high**2 - gap.value**2, 1e-12)
    t = (gap.value**2 - _TOLERANCE**2) / (half / float(student_t.ppf(0.975, degrees)))
    chances = float(student_t.cdf(t, degrees)), float(student_t.sf(t, degrees))
    test = f"jackknife over {GROUPS} groups of examples"
    return Verdict(gap.value, (gap.low, gap.high), chances, test, f"layer {layer}: {gap}")
