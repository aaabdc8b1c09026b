"""What a study says before it starts: what will be trained, how long it takes, what is exact and what is estimated."""

from collections.abc import Mapping
from typing import Any

from gatelab.dynamics import Kernels
from gatelab.lab.study.config import StudyConfig, Task
from gatelab.lab.study.rows import cells, is_watched, rows
from gatelab.lab.study.sizing import TimeEstimate
from gatelab.printing import counted
from gatelab.work.progress import duration

_SCALE_APART = 100.0


def preview(config: StudyConfig, facts: Mapping[str, Any]) -> list[str]:
    """The lines that are shown before anything is trained, or timed."""
    return [_network(config, facts), _data(facts), _training(config, facts), f"control: {control_text(facts)}"]


def _network(config: StudyConfig, facts: Mapping[str, Any]) -> str:
    units = facts["control"]["gates"]
    gates = f"{sum(units.values()):,} gates in {counted(len(units), 'layer')}"
    how = "studied as it is, never retrained" if config.studies_trained else "trained from its own start"
    return f"network: {facts['name']}, {facts['parameters']:,} parameters, {gates}; {how}"


def _data(facts: Mapping[str, Any]) -> str:
    shape = " × ".join(map(str, facts["shape"]))
    what = f"{facts['classes']} classes" if facts["classes"] else "real targets"
    text = f"data: {facts['data']}, {facts['train']:,} training and {facts['test']:,} test examples of {shape}, {what}"
    return " ".join([f"{text}.", *facts["remarks"]])


def _training(config: StudyConfig, facts: Mapping[str, Any]) -> str:
    networks = sum(cell.parameters["networks"] for cell in cells(config) if cell.parameters["kind"] != "none")
    how = config.training(Task(facts["task"]))
    shown = f"{how.loss.value} loss, {how.optimiser.value} at {how.learning_rate:g}, batches of {how.batch_size}"
    what = f"judged by {how.metric.value if how.metric else '?'}"
    trained = (
        f"{networks * config.runs} networks ({counted(config.runs, 'run')}), {counted(config.epochs, 'epoch')} each"
    )
    return f"training: {trained}; {shown}; {what}. Rows: " + "; ".join(row.title for row in rows(config))


def control_text(facts: Mapping[str, Any]) -> str:
    """How the control's gates were drawn, and how far draws lie apart."""
    control = facts["control"]
    text = (
        f"the random gates are those of a network drawn anew: {control['how']}. Two draws differ in "
        f"{control['apart']:.0%} of all gates, and from the network's in {control['from_own']:.0%}"
    )
    alike = facts["draws_alike"]
    if alike:
        text += (
            f". The factory gives the same {', '.join(alike[:3])}{', …' * (len(alike) > 3)} under every seed, so it "
            "seeds itself or loads weights; gatelab draws gates and fresh values itself. Runs of the network itself "
            "start alike"
        )
    return text


def kernels_text(kernels: Kernels | None) -> str:
    """What is exact and what is estimated."""
    if kernels is Kernels.OFF:
        return "gates are exact; kernels are off"
    if kernels is Kernels.SKETCH:
        return (
            "gates are exact; the path kernel and ν are estimated from random features, and the tangent kernel left out"
        )
    return "gates, path kernel, ν and tangent kernel are exact"


def time_preview(config: StudyConfig, estimate: TimeEstimate | None) -> list[str]:
    """What is exact, and how long it takes; without an estimate for a run that goes on."""
    if not is_watched(config):
        lines = ["kernels: none, since no network is trained whose gates move"]
    else:
        lines = [f"kernels ({config.kernels or Kernels.EXACT}): {kernels_text(config.kernels)}"]
    if estimate is None:
        return lines
    exact = estimate.kernels
    if config.kernels is Kernels.SKETCH and is_watched(config):
        lines[0] += ". Exact ones " + (
            "have no rule for this network" if exact is None else f"would take {duration(exact.clock)}"
        )
    looks = exact.clock if exact is not None and config.kernels is Kernels.EXACT else 0.0
    total = estimate.training.clock + looks
    return [
        *lines,
        f"time: about {duration(total)}, from a few steps of each kind of network on this machine as it is now",
    ]
