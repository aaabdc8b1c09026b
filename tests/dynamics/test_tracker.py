"""Watching gates and kernels while a network trains."""

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.errors import InputError
from tests import image_zoo, zoo
from tests.contracts.gated_model import snapshot


def test_records_are_what_the_functions_say():
    model, x, y = gl.models.mlp([5, 8, 8, 2]), torch.randn(12, 5), torch.randn(12).sign()
    tracker = gl.GateTracker(model, x, y)
    before = gl.capture_gates(model, x)
    first = tracker.record(0)
    assert first.flips == {}
    with torch.no_grad():
        model[0].weight.add_(0.3 * torch.randn_like(model[0].weight))
    second = tracker.record(10)
    after = gl.capture_gates(model, x)
    assert second.flips == after.flips(before)
    assert second.flip_rates == {"1": second.flips["1"] / (12 * 8), "3": second.flips["3"] / (12 * 8)}
    assert second.flip_rate == sum(second.flips.values()) / (2 * 12 * 8)
    assert sum(second.flips.values()) > 0
    assert tracker.switching_instants() == [10]
    assert second.active == after.active_fraction()
    kernel = gl.neural_path_kernel(model, x)
    assert second.complexity == pytest.approx(gl.kernels.label_complexity(kernel, y), rel=1e-6)
    tangent = gl.neural_tangent_kernel(model, x)
    assert second.tangent["all"] == pytest.approx((tangent.trace().item(), torch.linalg.matrix_norm(tangent).item()))
    assert tracker.gates == after


def test_a_gated_network_has_two_tangent_kernels():
    model = gl.to_dgn(gl.models.mlp([5, 8, 8, 2]), gl.Regime.DNPFL)
    record = gl.GateTracker(model, torch.randn(6, 5)).record(0)
    whole, feature, value = (record.tangent[part][0] for part in ("all", "feature", "value"))
    assert whole == pytest.approx(feature + value)
    assert record.complexity is None


def test_tracking_leaves_no_trace_in_the_middle_of_training():
    model = image_zoo.made(image_zoo.Vgg).train()
    x = image_zoo.Vgg.images()
    before = snapshot(model)
    tracker = gl.GateTracker(model, x)
    tracker.record(0)
    assert snapshot(model) == before


def test_models_without_a_path_kernel_are_tracked_all_the_same():
    record = gl.GateTracker(zoo.Tied(), torch.randn(4, 5), tangent=False).record(0)
    assert record.cosine is None
    assert record.tangent == {}
    assert record.active


def test_a_dead_network_has_no_direction_for_its_labels():
    model, x, y = gl.models.mlp([3, 5, 2], bias=True), torch.randn(8, 3), torch.arange(8) % 2
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    record = gl.GateTracker(model, x, y).record(0)
    assert record.active == {"1": 0.0}
    assert record.complexity == float("inf")
    assert record.cosine == 0.0


def test_bad_input():
    with pytest.raises(InputError, match="12 probes, 3 labels"):
        gl.GateTracker(gl.models.mlp([5, 4, 1]), torch.randn(12, 5), torch.ones(3))
    with pytest.raises(InputError, match="kernels is 'quick'; use one of 'off', 'sketch', 'exact'"):
        gl.GateTracker(gl.models.mlp([5, 4, 1]), torch.randn(12, 5), kernels="quick")
    with pytest.raises(InputError, match="nothing is recorded yet"):
        gl.GateTracker(gl.models.mlp([5, 4, 1]), torch.randn(12, 5)).plot()
    with pytest.raises(InputError, match="nothing is recorded yet"):
        _ = gl.GateTracker(nn.Sequential(nn.Linear(5, 4), nn.ReLU()), torch.randn(2, 5)).gates


def _nu(model, x, y, **options):
    return gl.GateTracker(model, x, y, tangent=False, **options).record(0).complexity


def test_nu_does_not_depend_on_the_names_of_classes():
    model, x, y = gl.models.mlp([5, 16, 16, 3]).double(), torch.randn(12, 5).double(), torch.arange(12) % 3
    renamed = torch.tensor([7, 0, 4])[y]
    kernel = gl.neural_path_kernel(model, x)
    by_class = sum(gl.kernels.label_complexity(kernel, (y == label).double()) for label in range(3))
    assert _nu(model, x, y) == pytest.approx(by_class, rel=1e-9)
    assert _nu(model, x, renamed) == pytest.approx(by_class, rel=1e-9)
    assert _nu(model, x, y.double()) != pytest.approx(by_class, rel=0.01)  # real numbers are targets, not classes
    assert _nu(model, x, nn.functional.one_hot(y).double()) == pytest.approx(by_class, rel=1e-9)


def test_two_classes_are_plus_and_minus_one():
    model, x, y = gl.models.mlp([5, 16, 1]).double(), torch.randn(10, 5).double(), torch.arange(10) % 2
    expected = gl.kernels.label_complexity(gl.neural_path_kernel(model, x), 2.0 * y - 1)
    for labels in (y, 1 - y, 4 + 3 * y, y.bool(), 2.0 * y - 1):
        assert _nu(model, x, labels) == pytest.approx(expected, rel=1e-9)


def test_a_sketch_estimates_the_path_kernel_and_off_computes_none():
    torch.manual_seed(0)
    model, x, y = gl.models.mlp([8, 64, 64, 3]), torch.randn(20, 8) + 1, torch.arange(20) % 2
    exact = gl.GateTracker(model, x, y).record(0)
    sketch = gl.GateTracker(model, x, y, kernels="sketch", sketch_dim=4096).record(0)
    # 64 networks of 64 units: a spread of a few percent; without the correction ν would be 0.5 % larger, and with 40
    # features, twice as many as probes, about twice as large.
    assert sketch.cosine == pytest.approx(exact.cosine, rel=0.1)
    assert sketch.complexity == pytest.approx(exact.complexity, rel=0.2)
    small = [gl.GateTracker(model, x, y, kernels="sketch", sketch_dim=40).record(0) for _ in range(2)]
    assert small[0] == small[1]
    assert 0.3 < small[0].complexity / exact.complexity < 2.5
    assert sketch.tangent == {}
    assert gl.GateTracker(model, x, y, kernels="sketch", sketch_dim=16).record(0).complexity is None
    off = gl.GateTracker(model, x, y, kernels=gl.dynamics.Kernels.OFF).record(0)
    assert (off.cosine, off.complexity, off.tangent) == (None, None, {})
    assert off.active == exact.active


def _trained(**options):
    torch.manual_seed(0)
    model, x = gl.models.mlp([4, 6, 2]), torch.randn(9, 4)
    tracker = gl.GateTracker(model, x, torch.arange(9) % 2, **options)
    for step in range(3):
        tracker.record(step)
        with torch.no_grad():
            model[0].weight.add_(0.5 * torch.randn_like(model[0].weight))
    return tracker


def test_records_as_a_frame_a_figure_and_a_line():
    pytest.importorskip("pandas")
    tracker = _trained()
    frame = tracker.to_frame()
    assert frame.index.tolist() == [0, 1, 2]
    assert frame.index.name == "step"
    assert frame["flip_rate/1"].tolist()[1:] == [record.flip_rates["1"] for record in tracker.records[1:]]
    assert frame["flip_rate"].isna().tolist() == [True, False, False]
    assert frame["nu"].tolist() == [record.complexity for record in tracker.records]
    panels = {panel.y_label: panel for panel in tracker.plot().panels}
    assert set(panels) == {"share of gates", "mean cosine of two probes", "ν = yᵀĤ⁻¹y", "trace"}
    assert panels["trace"].curves[0].y == tuple(record.tangent["all"][0] for record in tracker.records)
    assert repr(tracker) == "GateTracker(Sequential, 9 probes, kernels exact, 3 records, steps 0 to 2)"
    assert tracker._repr_html_().count("<tr>") == 4


def test_listeners_hear_every_record(tmp_path):
    heard = []
    tracker = _trained(tangent=False, on_epoch=heard.append)
    assert heard == [{"step": record.step, **record.metrics()} for record in tracker.records]


def test_tensorboard_shows_the_numbers(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(tmp_path) as writer:
        tracker = _trained(tangent=False, on_epoch=[gl.dynamics.tensorboard_listener(writer)])
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    written = accumulator.EventAccumulator(str(tmp_path)).Reload()
    events = written.Scalars("gates/nu")
    assert [event.step for event in events] == [0, 1, 2]
    assert [event.value for event in events] == pytest.approx([r.complexity for r in tracker.records], rel=1e-6)
    assert "gates/flip_rate/1" in written.Tags()["scalars"]


@pytest.mark.filterwarnings("ignore")  # Lightning's advice on workers and loggers
def test_lightning_records_while_it_trains(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = gl.models.mlp([4, 6, 2])

        def training_step(self, batch, _number):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

    torch.manual_seed(0)
    module, x, y = Module(), torch.randn(16, 4), torch.arange(16) % 2
    tracker = gl.GateTracker(module.net, x, y, tangent=False)
    logger = lightning.loggers.CSVLogger(tmp_path)
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[gl.dynamics.lightning_callback(tracker, every=2)], logger=logger, accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False, log_every_n_steps=1,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8))
    assert [record.step for record in tracker.records] == [0, 2, 3]
    assert trainer.callback_metrics["gates/nu"].item() == pytest.approx(tracker.records[-1].complexity, rel=1e-5)
    assert "gates/flip_rate" in (next(tmp_path.rglob("metrics.csv"))).read_text().splitlines()[0]
    assert module.net.training
