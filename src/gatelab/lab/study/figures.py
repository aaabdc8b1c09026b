"""The figures of a study, their captions computed from the data."""

from collections.abc import Mapping, Sequence

from gatelab.figures import Curve, Plot
from gatelab.lab.findings import FigureFacts, Table
from gatelab.lab.runs import Result
from gatelab.lab.study.answer import interval_text, percent
from gatelab.lab.study.config import StudyConfig
from gatelab.lab.study.rows import CONTROL, DECOUPLED_ROW, DEPENDENT, OWN, stage_name
from gatelab.lab.verdicts import Sample, readable, share_of_gap

_STAGE_AXIS = "epochs of training after which the gates were fixed"
_SHORT = {
    OWN: "the network itself",
    CONTROL: "random gates",
    DEPENDENT: "random gates, the values' own",
    DECOUPLED_ROW: "decoupled gates",
}


def row_figures(config: StudyConfig, last: Mapping[str, Sample], label: str, *, gain: bool) -> list[FigureFacts]:
    """All main rows beside each other; stages, layers and amounts of data where they were asked for.

    ``gain`` says whether the network has a gain over random gates, of which stages keep a share.
    """
    listed = [_main(config, last, label)]
    if len(config.stage_epochs()) > 1:
        listed += [_stages(config, last, label), *(_shares(config, last) if gain else [])]
    if config.layer_names:
        listed.append(_layers(config, last, label))
    if config.amounts:
        listed.append(_amounts(config, last, label))
    return listed


def _points(label: str, x: Sequence[float], samples: Sequence[Sample], *, line: bool = False) -> Curve:
    scale = 100 if samples[0].percent else 1
    heights = tuple(scale * sample.mean for sample in samples)
    return Curve(label, tuple(x), heights, tuple(scale * sample.spread for sample in samples), line=line)


def _level(label: str, ends: tuple[float, float], sample: Sample) -> Curve:
    return Curve(label, ends, (sample.mean * (100 if sample.percent else 1),) * 2, line=True)


def _text(sample: Sample) -> str:
    return f"{sample.number(sample.mean)}{' %' if sample.percent else ''}"


def _main(config: StudyConfig, last: Mapping[str, Sample], label: str) -> FigureFacts:
    trained = stage_name(config, config.epochs)
    shown = {**_SHORT, trained: "trained gates, fresh values"}
    names = [name for name in (CONTROL, DEPENDENT, trained, OWN, DECOUPLED_ROW) if name in last]
    ticks = tuple(shown[name] for name in names)
    curve = _points("", range(len(names)), [last[name] for name in names])
    best, worst = (pick(names, key=lambda name: last[name].mean) for pick in (max, min))
    caption = (
        f"Mean and standard deviation over {config.runs} runs. The lowest score is that of {shown[worst]}, "
        f"{_text(last[worst])}, the highest that of {shown[best]}, {_text(last[best])}."
    )
    return FigureFacts("The same values, other gates", Plot("", label, (curve,), ticks=ticks), caption)


def _stages(config: StudyConfig, last: Mapping[str, Sample], label: str) -> FigureFacts:
    epochs = list(config.stage_epochs())
    samples = [last[stage_name(config, epoch)] for epoch in epochs]
    ends = (float(epochs[0]), float(epochs[-1]))
    curves = (
        _points("values trained on gates of this stage", [float(e) for e in epochs], samples),
        _level(OWN, ends, last[OWN]),
        _level("random gates", ends, last[CONTROL]),
    )
    course = _course([(epoch, sample.mean, _text(sample)) for epoch, sample in zip(epochs, samples, strict=True)])
    return FigureFacts(
        "What the gates know, stage by stage",
        Plot(_STAGE_AXIS, label, curves),
        f"Each point is the mean of {config.runs} value networks trained from scratch for {config.epochs} epochs under "
        f"gates fixed at that stage, with the standard deviation. It {course}. Random gates give "
        f"{_text(last[CONTROL])}, the network itself has {_text(last[OWN])} after epoch {config.epochs}.",
    )


def _shares(config: StudyConfig, last: Mapping[str, Sample]) -> list[FigureFacts]:
    """How much of the gain the gates of each stage keep; nothing if there is no gain."""
    found = {e: share_of_gap(last[stage_name(config, e)], last[CONTROL], last[OWN]) for e in config.stage_epochs()}
    known = {epoch: share for epoch, share in found.items() if share is not None}
    if not known:
        return []
    x = tuple(map(float, known))
    reach = tuple(50 * (high - low) for _, (low, high) in known.values())
    curve = Curve("", x, tuple(100 * share for share, _ in known.values()), reach)
    course = _course([(epoch, share, percent(share)) for epoch, (share, _) in known.items()])
    levels = [Curve(name, (x[0], x[-1]), (y, y), line=True) for name, y in (("none of it", 0.0), ("all of it", 100.0))]
    ends = [f"{interval_text(known[epoch][1])} at epoch {epoch}" for epoch in (next(iter(known)), config.epochs)]
    return [
        FigureFacts(
            "How much of the gain the gates of each stage keep",
            Plot(_STAGE_AXIS, "share of the network's gain over random gates, %", (curve, *levels)),
            f"The share that the answer is about, also for gates fixed earlier; bars are 95 % intervals. It {course} "
            f"({'; '.join(ends)}). All shares compare with the network after {config.epochs} epochs: a study of more "
            "or fewer epochs has another gain to divide, and may have another answer.",
        )
    ]


def _course(points: Sequence[tuple[int, float, str]]) -> str:
    """Say how a curve runs: where it starts and ends, and where it lies above or below both."""
    (first, start, told), (last, end, ends) = points[0], points[-1]
    way = "stays at" if told == ends else f"{'rises' if end > start else 'falls'} from"
    text = f"{way} {told} at epoch {first}" + (f" and epoch {last}" if told == ends else f" to {ends} at epoch {last}")
    between = points[1:-1]
    for what, pick, beyond in (("highest", max, max(start, end)), ("lowest", min, min(start, end))):
        if not between:
            continue
        epoch, value, shown = pick(between, key=lambda point: point[1])
        if value != beyond and pick(value, beyond) == value and shown not in (told, ends):
            text += f"; in between it is {what} at epoch {epoch}, {shown}"
    return text


def _layers(config: StudyConfig, last: Mapping[str, Sample], label: str) -> FigureFacts:
    layers = config.layer_names
    only = [last[f"trained gates in '{layer}' only"] for layer in layers]
    without = [last[f"random gates in '{layer}' only"] for layer in layers]
    ends = (0.0, float(len(layers) - 1))
    curves = (
        _points("trained gates in this layer only", range(len(layers)), only),
        _points("random gates in this layer only", [place + 0.15 for place in range(len(layers))], without),
        _level("all trained", ends, last[stage_name(config, config.epochs)]),
        _level("all random", ends, last[CONTROL]),
    )
    most = max(range(len(layers)), key=lambda place: only[place].mean)
    dearest = min(range(len(layers)), key=lambda place: without[place].mean)
    return FigureFacts(
        "Which layers' gates hold it?",
        Plot("gate layer", label, curves, ticks=layers),
        f"Alone among random gates, the trained gates of '{layers[most]}' bring most: {_text(only[most])}. Alone among "
        f"trained gates, random gates in '{layers[dearest]}' cost most: {_text(without[dearest])} remain.",
    )


def _amounts(config: StudyConfig, last: Mapping[str, Sample], label: str) -> FigureFacts:
    amounts = sorted(config.amounts)
    trained, control = (
        [last[f"{which} gates, {amount:.3g} of the data"] for amount in amounts] for which in ("its trained", "random")
    )
    whole = [*amounts] if 1.0 in amounts else [*amounts, 1.0]
    if 1.0 not in amounts:
        trained.append(last[stage_name(config, config.epochs)])
        control.append(last[CONTROL])
    curves = (_points("trained gates", whole, trained, line=True), _points("random gates", whole, control, line=True))
    least = whole[0]
    return FigureFacts(
        "How many examples do values need, once gates are fixed?",
        Plot("share of the training data", label, curves),
        f"With {least:.3g} of the data, values on trained gates reach {_text(trained[0])}, on random gates "
        f"{_text(control[0])}; with all data {_text(trained[-1])} and {_text(control[-1])}.",
    )


def dynamics_table(results: Mapping[str, Result]) -> list[Table]:
    """The first network's gates and kernels while it trains, as far as they were looked at."""
    records = results["network"].get("records", [])
    if not records:
        return []
    columns = ["epoch", "gates flipped since the row above, %"]
    kernels = {
        "mean cosine of H": [None if r["cosine"] is None else f"{r['cosine']:.3f}" for r in records],
        "ν = yᵀĤ⁻¹y": [None if r["complexity"] is None else readable(r["complexity"]) for r in records],
        "trace of K": [readable(r["tangent"]["all"][0]) if "all" in r["tangent"] else None for r in records],
    }
    kept = {name: values for name, values in kernels.items() if any(values)}
    rows = tuple(
        (
            str(record["epoch"]),
            "" if record["flipped"] is None else f"{100 * record['flipped']:.2f}",
            *(values[place] or "" for values in kept.values()),
        )
        for place, record in enumerate(records)
    )
    return [Table("The network's gates and kernels while it trains", (*columns, *kept), rows)]


def dynamics_figures(results: Mapping[str, Result]) -> list[FigureFacts]:
    """ν of the network, and the tangent kernels of the decoupled one."""
    figures = []
    records = [r for r in results["network"].get("records", []) if r["complexity"] is not None]
    if len(records) > 1:
        first, last = records[0]["complexity"], records[-1]["complexity"]
        course = _course([(r["epoch"], r["complexity"], readable(r["complexity"])) for r in records])
        meaning = (
            "turn towards the labels: they became simpler to these gates"
            if last < first
            else "turn away from the labels: they became more complex to these gates, unlike in npk, Section 6"
        )
        figures.append(
            FigureFacts(
                "How complex the labels are to the path kernel",
                Plot("epoch", "ν = yᵀĤ⁻¹y of the network's gates", (_over_epochs("ν", records, "complexity"),)),
                f"ν {course}. Over the whole training the path kernel's large directions {meaning}.",
            )
        )
    return figures + _tangent_figure(results)


def _tangent_figure(results: Mapping[str, Result]) -> list[FigureFacts]:
    records = [r for r in results.get("decoupled", {}).get("records", []) if {"feature", "value"} <= set(r["tangent"])]
    if len(records) < 2:
        return []
    parts = {"value": "K^V", "feature": "K^F"}
    curves = tuple(
        Curve(
            label,
            tuple(float(r["epoch"]) for r in records),
            tuple(r["tangent"][part][0] for r in records),
            line=True,
        )
        for part, label in parts.items()
    )
    grown = {label: curve.y[-1] / curve.y[0] for label, curve in zip(parts.values(), curves, strict=True) if curve.y[0]}
    said = ", ".join(f"{label} by a factor of {readable(factor)}" for label, factor in grown.items())
    return [
        FigureFacts(
            "Gates and values of the decoupled network both learn",
            Plot("epoch", "trace of the tangent kernel", curves),
            f"The tangent kernel of a deep gated network is K^V + K^F: what values and what gates contribute. From "
            f"first to last look their traces change: {said}.",
        )
    ]


def _over_epochs(label: str, records: Sequence[Result], key: str) -> Curve:
    return Curve(label, tuple(float(r["epoch"]) for r in records), tuple(r[key] for r in records), line=True)
