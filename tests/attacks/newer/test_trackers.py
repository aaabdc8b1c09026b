"""Trackers in loops that break, networks that change under them, and the gap that hard gates leave."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import GatelabError
from tests.attacks.outcomes import ChangedStateError, RawError, SilentlyWrongError, refusal
from tests.attacks.state.snapshots import compare, snapshot

pytestmark = pytest.mark.attack("trackers and hardening")


def net(width: int = 4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))


def soft() -> nn.Module:
    return gl.to_dgn(net(), gl.Regime.DNPFL, generator=torch.Generator().manual_seed(0))


def probes() -> torch.Tensor:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(1))


ARGUMENTS = {
    "a number as network": lambda: gl.GateTracker(3, probes()),
    "a class as network": lambda: gl.GateTracker(nn.Linear, probes()),
    "probes of a list": lambda: gl.GateTracker(net(), [[1.0, 2.0, 3.0]]),
    "probes of another size": lambda: gl.GateTracker(net(), torch.randn(5, 4)).record(0),
    "one probe without its axis": lambda: gl.GateTracker(net(), torch.randn(3)),
    "no probes": lambda: gl.GateTracker(net(), torch.randn(0, 3)),
    "probes with NaN": lambda: gl.GateTracker(net(), torch.full((2, 3), torch.nan)),
    "fewer labels": lambda: gl.GateTracker(net(), probes(), torch.zeros(4)),
    "labels of a list": lambda: gl.GateTracker(net(), probes(), [0, 1, 0, 1, 0]),
    "a single label": lambda: gl.GateTracker(net(), probes(), torch.tensor(1)),
    "labels that are a number": lambda: gl.GateTracker(net(), probes(), 1),
    "labels with NaN": lambda: gl.GateTracker(net(), probes(), torch.full((5,), torch.nan)).record(0),
    "complex labels": lambda: gl.GateTracker(net(), probes(), torch.zeros(5) * 1j).record(0),
    "kernels of another kind": lambda: gl.GateTracker(net(), probes(), kernels="all"),
    "kernels that are a list": lambda: gl.GateTracker(net(), probes(), kernels=["exact"]),
    "a sketch of text": lambda: gl.GateTracker(net(), probes(), sketch_dim="64"),
    "a sketch of a fraction": lambda: gl.GateTracker(net(), probes(), kernels="sketch", sketch_dim=2.5),
    "a sketch of nothing": lambda: gl.GateTracker(net(), probes(), sketch_dim=0),
    "a number as listener": lambda: gl.GateTracker(net(), probes(), on_epoch=5),
    "numbers as listeners": lambda: gl.GateTracker(net(), probes(), on_epoch=[5]),
    "gates of another kind": lambda: gl.GateTracker(net(), probes(), kernel_gates="soft"),
    "a number as earlier gates": lambda: gl.GateTracker(net(), probes(), before=3),
    "gates of another network": lambda: gl.GateTracker(
        net(), probes(), before=gl.capture_gates(net(7), probes())
    ).record(0),
    "gates of other probes": lambda: gl.GateTracker(
        net(), probes(), before=gl.capture_gates(net(), probes()[:2])
    ).record(0),
    "a plot of nothing": lambda: gl.GateTracker(net(), probes()).plot(),
    "gates of nothing": lambda: gl.GateTracker(net(), probes()).gates,
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    refusal(ARGUMENTS[name])


def _broken_weights(model):
    model[0].weight.data[0, 0] = torch.inf


def _other_width(model):
    model[0], model[2] = nn.Linear(3, 6), nn.Linear(6, 2)


def _other_input(model):
    model[0] = nn.Linear(5, 4)


def _more_layers(model):
    model.append(nn.ReLU())
    model.append(nn.Linear(2, 2))


def _not_a_gate(model):
    model[1] = nn.Tanh()


def _other_dtype(model):
    model.float()


CHANGES = [_broken_weights, _other_width, _other_input, _more_layers, _not_a_gate, _other_dtype]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_network_that_changes_under_its_tracker(change):
    """The record is refused, the earlier records stay, and the loop goes on when the network is mended."""
    model = net().train()
    tracker = gl.GateTracker(model, probes(), torch.tensor([0, 1, 0, 1, 0]))
    first = tracker.record(0)
    layers = list(model)
    before_change = copy.deepcopy(model.state_dict())
    change(model)
    state = snapshot(model, tracker.x)
    refusal(lambda: tracker.record(1))
    compare(state, snapshot(model, tracker.x))
    if tracker.records != [first] or not model.training:
        raise ChangedStateError("a record of a network that was refused, or its mode")
    model.double()
    while len(model) > 3:
        del model[3]
    for place, layer in enumerate(layers):
        model[place] = layer
    model.load_state_dict(before_change)
    if sum(tracker.record(2).flips.values()):
        raise SilentlyWrongError("flips of a network that is the same")


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_a_listener_that_breaks_the_loop(error):
    def listener(_metrics):
        raise error

    model = net().train()
    tracker = gl.GateTracker(model, probes(), on_epoch=listener)
    state = snapshot(model, tracker.x)
    with pytest.raises(error):
        tracker.record(0)
    compare(state, snapshot(model, tracker.x))


def test_a_tracker_that_is_resumed():
    """Pickled and taken up again, with gates and records, it goes on as if nothing had happened."""
    model = net()
    whole = gl.GateTracker(model, probes())
    whole.record(0)
    resumed = pickle.loads(pickle.dumps(whole))
    for tracker in (whole, resumed):
        with torch.no_grad():
            tracker.model[0].weight.neg_()
        tracker.record(1)
    if whole.records != resumed.records:
        raise SilentlyWrongError(f"{resumed.records} instead of {whole.records}")


def test_trackers_in_threads():
    model, found, errors = net(), [], []

    def work():
        try:
            found.append(gl.GateTracker(model, probes()).record(0))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RawError(f"{errors[0]!r}")
    if any(record != found[0] for record in found):
        raise SilentlyWrongError("another record in a thread")


HARDENING = {
    "a number as network": lambda: gl.hardening_gap(3, probes()),
    "x of another size": lambda: gl.hardening_gap(soft(), torch.randn(5, 4)),
    "x of a list": lambda: gl.hardening_gap(soft(), [[1.0, 2.0, 3.0]]),
    "x with NaN": lambda: gl.hardening_gap(soft(), torch.full((2, 3), torch.nan)),
    "no examples": lambda: gl.hardening_gap(soft(), torch.randn(0, 3)),
    "y of a list": lambda: gl.hardening_gap(soft(), probes(), [0, 1, 0, 1, 0]),
    "a single y": lambda: gl.hardening_gap(soft(), probes(), torch.tensor(1)),
    "fewer labels": lambda: gl.hardening_gap(soft(), probes(), torch.zeros(4).long()),
    "classes beyond the outputs": lambda: gl.hardening_gap(soft(), probes(), torch.full((5,), 2)),
    "negative classes": lambda: gl.hardening_gap(soft(), probes(), torch.full((5,), -1)),
    "truth values": lambda: gl.hardening_gap(soft(), probes(), torch.ones(5, 2).bool()),
    "complex labels": lambda: gl.hardening_gap(soft(), probes(), torch.zeros(5) * 1j),
    "labels with NaN": lambda: gl.hardening_gap(soft(), probes(), torch.full((5, 2), torch.nan)),
    "labels of another shape": lambda: gl.hardening_gap(soft(), probes(), torch.zeros(5, 3)),
    "labels on another device": lambda: gl.hardening_gap(soft(), probes(), torch.zeros(5, 2, device="meta")),
    "sparse labels": lambda: gl.hardening_gap(soft(), probes(), torch.zeros(5, 2).to_sparse()),
    "a tanh": lambda: gl.hardening_gap(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), probes()),
}


@pytest.mark.parametrize("name", HARDENING)
def test_hardening(name):
    refusal(HARDENING[name])


def test_gap_against_a_network_with_hard_gates():
    """The same weights under a step, written by hand."""
    model, x = soft(), probes()
    hard = copy.deepcopy(model)
    hard.set_gates(gl.gates.HardGate())
    y = torch.tensor([0, 1, 1, 0, 1])
    gap = gl.hardening_gap(model, x, y)
    losses = [float(nn.functional.cross_entropy(twin(x).detach(), y)) for twin in (model, hard)]
    if not torch.allclose(torch.tensor([gap.soft_loss, gap.hard_loss]), torch.tensor(losses)):
        raise SilentlyWrongError(f"{gap} instead of {losses}")
    share = float((model(x).argmax(1) == hard(x).argmax(1)).double().mean())
    if gap.same_class != share:
        raise SilentlyWrongError(f"{gap.same_class} instead of {share}")


def test_shallow_twin_reads_x_directly():
    """Every layer of gates is an affine map of x: gates at a, b and their middle are collinear before the step."""
    deep = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    twin = gl.to_dlgn(deep, shallow=True, generator=torch.Generator().manual_seed(0))
    for name, layer in gl.half_spaces(twin).items():
        points = torch.randn(50, 3)
        opened = points @ layer.normals().T + layer.offsets > 0
        if not torch.equal(opened, gl.capture_gates(twin, points).hard()[name]):
            raise SilentlyWrongError(f"half-spaces of {name} are not its gates")


@pytest.mark.parametrize(
    "model",
    [
        nn.Linear(3, 2),
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.PReLU(4), nn.Linear(4, 2)),
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)),
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 2)),
    ],
    ids=["no gate", "tanh", "GELU", "PReLU", "adaptive pooling", "layer norm"],
)
def test_shallow_twin_of_unusual_models(model):
    """A twin that runs, or a refusal; and the model stays as it was."""
    x = torch.randn(4, 1, 6, 6) if isinstance(next(model.children(), None), nn.Conv2d) else probes()
    model = copy.deepcopy(model).double()
    state = snapshot(model, x)
    try:
        twin = gl.to_dlgn(model, shallow=True, x=x, generator=torch.Generator().manual_seed(0))
    except GatelabError:
        twin = None
    except Exception as error:
        raise RawError(f"{type(error).__name__}: {error}") from error
    compare(state, snapshot(model, x))
    if twin is not None and twin(x).shape != model(x).shape:
        raise SilentlyWrongError("outputs of another shape")
