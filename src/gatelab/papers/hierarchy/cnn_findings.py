"""What the diagnosis of trained networks says: tables, images, claims."""

from collections.abc import Sequence
from typing import Any

from gatelab.figures import Heatmap, Panels
from gatelab.hierarchy.projection_tracker import projection_plot
from gatelab.lab.findings import FigureFacts, Findings, Table
from gatelab.lab.runs import Result
from gatelab.lab.verdicts import Claim, Sample, all_of, below, greater, readable, undecided, within
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
    """Put the findings of all runs together; the images are of the first."""
    trained, start = ([own[stage]["layers"] for own in results] for stage in ("trained", "start"))
    first = results[0]
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
        _gaps_table("after training", trained),
        _gaps_table("at the start", start),
        _information(trained),
        _nodes(results),
        *_figures(results, trained),
        *_claims(results, trained, start),
        *first["trained"]["words"],
        f"Accuracy on the test data: {numbers(100 * own['accuracy'][0] for own in results).text()} % (teacher), "
        f"{numbers(100 * own['accuracy'][1] for own in results).text()} % (student).",
        "All gaps are relative to the RMS of the true means given z, and corrected for sampling noise: 1 means that an "
        "assumption is as wrong as the mean is large. The sentences above are about run 0, with 95 % intervals over "
        "examples.",
        'All claims are ours: the paper calls its assumptions "practically reasonable" and prints no numbers.',
    )


def _layers(rows: Sequence[list[dict[str, Any]]], name: str, index: int) -> Sample | None:
    values = [own[index][name] for own in rows]
    if any(value is None for value in values):
        return None
    return numbers(value[0] if isinstance(value, list) else value for value in values)


def _text(sample: Sample | None) -> str:
    return "–" if sample is None else sample.text()


def _gaps_table(when: str, rows: Sequence[list[dict[str, Any]]]) -> Table:
    cells = [
        (layer["layer"], *(_text(_layers(rows, name, index)) for name in _NAMES)) for index, layer in enumerate(rows[0])
    ]
    return Table(
        f"Theorem 2's assumptions {when}, layer by layer",
        ("layer", *_NAMES.values()),
        tuple(cells),
        f"0 means that the assumption holds; ± over {len(rows)} runs.",
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
    stages = ("start", "trained", "student at the start", "student")
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
    columns = ("layer", "labels, start", "labels, trained", "z: own", "z: student, start", "z: student, trained")
    return Table(
        "What nodes are selective to",
        (*columns, "Def. 3", "share of Var f"),
        tuple(cells),
        "Mean over nodes of the largest correlation with a label, or with an event of the teacher's z. Disentanglement "
        "needs binary factors: codes=sign pattern.",
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
            "Means over runs.",
            ticks=names,
        )
    ]
    for patches in results[0]["patches"]:
        panels = tuple(
            Heatmap("", tuple(map(tuple, image)), 0.0, 1.0, scale=None) for row in patches["images"] for image in row
        )
        shown.append(
            FigureFacts(
                f"Layer {patches['layer']}: what its nodes look for",
                Panels(panels, len(patches["images"][0]), tuple(patches["nodes"])),
                "The places in run 0's data that excite a node most, one for each image, cut to its receptive field. "
                "At the left the node and the labels of these images; nodes most correlated with a label come first.",
            )
        )
    shares = {epoch: seen["shares"] for epoch, seen in enumerate(results[0]["normalisation"])}
    if shares[0]:
        shown.append(
            FigureFacts(
                "What batch norm removes of the gradient",
                projection_plot(shares, "epoch"),
                f"Run 0, a batch of 256, mean over channels: from {min(shares[0]):.1e} to {max(shares[0]):.1e} at the "
                f"first look, {min(shares[max(shares)]):.1e} to {max(shares[max(shares)]):.1e} at the last. A channel "
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
    loaded = any(own["loaded"] for own in results)
    hidden = range(count - 1)

    def mean(stage: str, what: str) -> Sample:
        return numbers(sum(own[stage]["layers"][i][what] for i in hidden) / len(hidden) for own in results)

    residual = max(seen["residual"] for own in results for seen in own["normalisation"])
    claims = [
        Claim(
            f"The assumptions are practically reasonable: f(z) within {_TOLERANCE:.0%} at every layer",
            all_of([below(sample, _TOLERANCE) for sample in forward[1]]),
        ),
        Claim("Training brings f(z) nearer to Eq. 7", greater(means[0], means[1], paired=True)),
        Claim(
            "Training makes nodes selective to labels",
            greater(mean("trained", "label_selectivity"), mean("start", "label_selectivity"), paired=True),
        ),
    ]
    goal = "Another network's nodes become selective to this teacher's events (the paper's goal)"
    before, after = (mean(stage, "selectivity") for stage in ("student at the start", "student"))
    claims.append(
        Claim(goal, undecided("the student is not trained") if loaded else greater(after, before, paired=True))
    )
    if results[0]["normalisation"][0]["shares"]:
        claims.append(
            Claim(
                "What comes back through batch norm is (c₁/σ) P^⊥ g (Thm. 5)",
                within(residual, 1e-8, "autograd against the formula, relative:"),
            )
        )
    return claims
