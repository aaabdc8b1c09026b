from copy import deepcopy

import pytest
import torch

from gatelab.errors import InputError
from gatelab.hierarchy import (
    GradientTrainer,
    LocalNetwork,
    NodeOptions,
    Norm,
    ReformulatedTrainer,
    Teacher,
    TopLoss,
    conditions,
    counted_events,
    exact_events,
    full_information,
    observe_student,
    reformulate,
    string_fields,
    student_for,
)
from gatelab.hierarchy import events as events_module
from gatelab.hierarchy.exactness import independence_gap
from gatelab.hierarchy.inputs import MarkovChain, Uniform
from gatelab.hierarchy.rules import parity, random_table
from tests.references.hierarchy import total_variation

CHAIN = MarkovChain(5, torch.tensor([0.3, 0.7]), torch.tensor([[0.8, 0.2], [0.4, 0.6]]))


@pytest.fixture
def lossy(generator):
    return Teacher(string_fields(5, [3], [1]), random_table(3, generator), CHAIN)


def parameters(student):
    return torch.cat([p.detach().flatten() for p in student.parameters()])


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("sparse", [False, True])
def test_both_trainings_agree_when_z_determines_x(lossy, generator, monkeypatch, norm, sparse):
    if sparse:
        monkeypatch.setattr(events_module, "DENSE_LIMIT", 0)
    teacher = full_information(lossy)
    # ε > 0 for nodes that are never open.
    student = student_for(teacher, 6, hidden=NodeOptions(norm=norm, eps=1e-6), generator=generator)
    twin, start = deepcopy(student), parameters(student)
    on_z, on_x = ReformulatedTrainer(twin, exact_events(teacher), 0.3), GradientTrainer(student, teacher, 0.3)
    losses = [(on_z.step(), on_x.step()) for _ in range(20)]
    assert losses[-1][1] < 0.9 * losses[0][1]
    for a, b in losses:
        assert a == pytest.approx(b, abs=1e-10)
    assert (parameters(student) - start).abs().max() > 0.1
    torch.testing.assert_close(parameters(twin), parameters(student), atol=1e-10, rtol=0)


@pytest.mark.parametrize("norm", list(Norm))
def test_regions_with_several_parents(generator, norm):
    """In three layers of overlapping regions gradients arrive from two parents at once."""
    teacher = full_information(Teacher(string_fields(5, [2, 2], [1, 1]), random_table(3, generator), CHAIN))
    student = student_for(teacher, 4, hidden=NodeOptions(norm=norm, eps=1e-6), generator=generator)
    assert any(len(teacher.fields.parents(region)) > 1 for region in teacher.fields.inner)
    found, update = reformulate(student, exact_events(teacher)), GradientTrainer(student, teacher, 1.0).update()
    assert list(found.weights) == list(update)
    for region, move in update.items():
        torch.testing.assert_close(found.weights[region], move, atol=1e-12, rtol=1e-10)


def test_a_lossy_teacher_makes_the_reformulation_inexact(lossy, generator):
    student = student_for(lossy, 6, generator=generator)
    found, seen = reformulate(student, exact_events(lossy)), observe_student(student, lossy)
    hidden = found.activations["h1_0"] - seen.activation("h1_0")
    assert hidden.abs().max() > 1e-2
    worst = conditions(student, lossy).worst
    assert worst["broadness"] > 0.01
    assert worst["decorrelation of activations"] > 0.01


def test_measured_gates_are_probabilities(lossy, generator):
    student = student_for(lossy, 6, generator=generator)
    found = reformulate(student, exact_events(lossy), gates_from=lossy)
    seen = observe_student(student, lossy)
    torch.testing.assert_close(found.gates["h1_1"], seen.gate("h1_1"))
    assert bool(((found.gates["h1_1"] > 0) & (found.gates["h1_1"] < 1)).any())


def test_the_mean_update_of_counted_batches_is_the_exact_update(generator):
    """The mean of ΔW over batches is ΔW, up to noise that shrinks with their number."""
    teacher = full_information(Teacher(string_fields(4, [2]), random_table(3, generator)))
    student = student_for(teacher, 4, generator=generator)
    exact = reformulate(student, exact_events(teacher)).weights["h1_0"]
    draws = torch.stack(
        [
            reformulate(student, counted_events(teacher, teacher.inputs.sample(20, generator))).weights["h1_0"]
            for _ in range(100)
        ]
    )
    # The length along ΔW pools all entries, and so sees a smaller bias than any entry alone.
    length = (draws * exact).sum(dim=(1, 2)) / exact.square().sum()
    assert (length.mean() - 1).abs() < 4 * length.std() / 100**0.5
    error = draws.std(dim=0) / 100**0.5
    assert ((draws.mean(dim=0) - exact).abs() / error.clamp(min=1e-12)).max() < 5
    trainer = ReformulatedTrainer(student, exact_events(teacher), 0.1)
    trainer.events = counted_events(teacher, teacher.inputs.sample(20, generator))
    assert trainer.events.samples == 20


def test_gaps_agree_with_total_variations(lossy, generator):
    student = student_for(lossy, 3, generator=generator)
    found = conditions(student, lossy)
    for (parent, child), edge in found.edges.items():
        assert edge.focus == pytest.approx(total_variation(lossy, child, child, parent), abs=1e-12)
        assert edge.broadness == pytest.approx(total_variation(lossy, parent, parent, child), abs=1e-12)


def test_an_independence_gap_by_hand():
    """x ∈ {0, 1} is forgotten by its own variable, known to the other: TV = ½ in both cases."""
    x = torch.tensor([0, 1])
    assert independence_gap(x, torch.zeros(2).long(), x, torch.tensor([0.5, 0.5])) == pytest.approx(0.5)
    assert independence_gap(x, x, x, torch.tensor([0.5, 0.5])) == pytest.approx(0.0)


def test_the_update_gap_is_the_missing_covariance(lossy, generator):
    """E[f_k g_j] − E_z[f_k(z) g_j(z)] is the covariance that ``update`` reports."""
    student = student_for(lossy, 3, generator=generator)
    seen, found = observe_student(student, lossy), conditions(student, lossy)
    p, f, g = seen.probability, seen.states["h1_1"].output, seen.gradients["top"]
    whole = f.T @ (p.unsqueeze(1) * g)
    z = seen.z["top"]
    f_z, g_z = seen.given_z(f, "top")[z], seen.given_z(g, "top")[z]
    missing = whole - f_z.T @ (p.unsqueeze(1) * g_z)
    scale = (p @ f.square()).sqrt().unsqueeze(1) * (p @ g.square()).sqrt()
    torch.testing.assert_close(found.edges["top", "h1_1"].update * scale, missing)


def test_samples_instead_of_all_inputs(lossy, generator):
    student = student_for(lossy, 3, generator=generator)
    exact = conditions(student, lossy).edges["top", "h1_0"].focus
    sampled = conditions(student, lossy, lossy.inputs.sample(2000, generator)).edges["top", "h1_0"].focus
    assert sampled == pytest.approx(exact, abs=0.05)


def test_training_on_a_sample_and_by_batches(lossy, generator):
    student = student_for(lossy, 6, generator=generator)
    x = lossy.inputs.sample(50, generator)
    trainer = GradientTrainer(student, lossy, 0.2, x)
    first = trainer.step()
    for _ in range(50):
        trainer.step(torch.randint(50, (10,), generator=generator))
    assert trainer.step() < first


def test_single_precision_students(lossy, generator):
    student = student_for(lossy, 3, dtype=torch.float32, generator=generator)
    trainer = ReformulatedTrainer(student, exact_events(lossy), 0.1)
    trainer.step()
    assert all(p.dtype == torch.float32 for p in student.parameters())


def test_mismatched_arguments_are_refused(lossy):
    student = student_for(lossy, 3)
    other = exact_events(Teacher(string_fields(5, []), parity, Uniform(5)))
    with pytest.raises(InputError, match="different receptive fields"):
        reformulate(student, other)
    with pytest.raises(InputError, match="learning rate is 0"):
        ReformulatedTrainer(student, exact_events(lossy), 0.0)
    with pytest.raises(InputError, match="targets have 3 columns, the student 2 outputs"):
        reformulate(LocalNetwork(lossy.fields, 2, 2), exact_events(lossy))


def test_a_node_that_does_not_vary_over_z_is_refused(lossy):
    student = student_for(lossy, 3, hidden=NodeOptions(norm=Norm.AFTER_LINEAR))
    with torch.no_grad():
        student.weights["h1_2"].fill_(1.0)
    with pytest.raises(InputError, match="region 'h1_2', node 0"):
        reformulate(student, exact_events(lossy))


def test_a_student_without_gates_has_nothing_to_decorrelate(lossy, generator):
    """The top is linear by default, and a linear student has no gate at all: both gaps are 0."""
    linear = student_for(lossy, 3, hidden=NodeOptions(relu=False), generator=generator)
    worst = conditions(linear, lossy).worst
    assert worst["decorrelation of activations"] == worst["decorrelation of gradients"] == 0
    node = conditions(student_for(lossy, 3, generator=generator), lossy).nodes["top"]
    assert float(node.activation.max()) == float(node.gradient.max()) == 0
    assert bool((observe_student(linear, lossy).gate("h1_0") == 1).all())


@pytest.mark.parametrize("sparse", [False, True])
def test_single_precision_networks_take_double_tables(generator, monkeypatch, sparse):
    """Encodings and probabilities may come in float64; the student decides."""
    if sparse:
        monkeypatch.setattr(events_module, "DENSE_LIMIT", 0)
    teacher = Teacher(string_fields(4, [2]), parity)
    codes = {leaf: torch.eye(2, dtype=torch.float64) for leaf in teacher.fields.leaves}
    student = LocalNetwork(teacher.fields, 3, 2, encodings=codes, dtype=torch.float32, generator=generator)
    found = reformulate(student, exact_events(teacher), gates_from=teacher)
    assert found.weights["h1_0"].dtype == torch.float32
    assert student(torch.tensor([[0, 1, 1, 0]])).dtype == torch.float32


def test_training_under_a_softmax_agrees_when_z_determines_x(lossy, generator):
    teacher = full_information(lossy)
    student = student_for(teacher, 6, loss=TopLoss.CROSS_ENTROPY, generator=generator)
    twin = deepcopy(student)
    on_z, on_x = ReformulatedTrainer(twin, exact_events(teacher), 0.5), GradientTrainer(student, teacher, 0.5)
    losses = [(on_z.step(), on_x.step()) for _ in range(10)]
    assert losses[-1][0] == pytest.approx(losses[-1][1], abs=1e-12)
    x, p = teacher.inputs.support()
    by_torch = torch.nn.functional.cross_entropy(student(x), teacher.label(x), reduction="none") @ p
    assert observe_student(student, teacher).loss == pytest.approx(by_torch.item())
    torch.testing.assert_close(parameters(twin), parameters(student), atol=1e-10, rtol=0)
