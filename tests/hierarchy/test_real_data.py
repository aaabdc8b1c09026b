"""Data sets as inputs: images whose contents no 64-bit code can hold, labels as z_ω, networks of torch as students."""

import pytest
import torch
from torch import nn

from gatelab.data import load
from gatelab.errors import InputError, SupportTooLargeError
from gatelab.hierarchy import (
    Teacher,
    conditions,
    disentanglement_score,
    exact_events,
    fields_of,
    full_information,
    image_fields,
    observe_student,
    refined,
    reformulate,
    rules,
    selectivity,
    student_for,
)
from gatelab.hierarchy.inputs import Empirical, Uniform, discretise


@pytest.fixture(scope="module")
def digits():
    data = load("digits")
    return discretise(data.train_x[:150].double()), data.train_y[:150]


@pytest.fixture
def teacher(digits, generator):
    return Teacher(image_fields(8, 8, [4]), rules.quantised_convolution(2, generator), Empirical(*digits[:1]))


def test_students_of_64_pixels_are_observed(teacher, generator):
    """2⁶⁴ contents are possible, at most 150 occur."""
    student = student_for(teacher, 3, generator=generator)
    worst = conditions(student, teacher).worst
    assert all(0 <= worst[name] <= 1 for name in ("focus", "broadness"))
    assert 0 < selectivity(student, teacher).overall < 1
    assert 0 < disentanglement_score(student, teacher).overall <= 1
    found = reformulate(student, exact_events(teacher), gates_from=teacher)
    torch.testing.assert_close(found.gates["h1_0"], observe_student(student, teacher).gate("h1_0"))


def test_contents_of_any_size_are_numbered(teacher, digits):
    x = digits[0]
    numbers = teacher.numbered_contents("top", x)
    same = (x.unsqueeze(0) == x.unsqueeze(1)).all(dim=2)
    assert torch.equal(numbers.unsqueeze(0) == numbers.unsqueeze(1), same)


def test_the_joint_variable_of_a_data_set_numbers_what_occurs(digits, teacher):
    joint = Teacher(image_fields(8, 8, [4]), rules.joint, Empirical(digits[0]))
    events = exact_events(joint)
    assert int((events.priors["top"] > 0).sum()) == joint.inputs.support_size
    unseen = torch.ones(1, 64, dtype=torch.int64)
    assert int(joint(unseen)["top"][0]) == joint.sizes["top"] - 1
    with pytest.raises(SupportTooLargeError, match=r"region 'top'.*inputs\.Empirical"):
        Teacher(image_fields(8, 8, [4]), rules.joint, Uniform(64))


def test_full_information_of_a_data_set_is_exact(teacher, generator):
    """Theorem 3 on digits: if z numbers the contents that occur, ΔW on z is ΔW on the data."""
    full = full_information(teacher)
    student = student_for(full, 3, dtype=torch.float64, generator=generator)
    assert max(conditions(student, full).worst.values()) < 1e-10
    seen, found = observe_student(student, full), reformulate(student, exact_events(full))
    assert found.loss == pytest.approx(seen.loss, abs=1e-12)
    torch.testing.assert_close(found.activations["h1_2"], seen.activation("h1_2"), atol=1e-12, rtol=0)


def test_labels_of_the_data_are_the_top_variable(digits, generator):
    x, y = digits
    teacher = Teacher(image_fields(8, 8, [4]), rules.quantised_convolution(2, generator), Empirical(x, labels=y))
    assert torch.equal(teacher.label(x), y)
    assert teacher.sizes["top"] == teacher.n_outputs == 10
    torch.testing.assert_close(exact_events(teacher).priors["top"], torch.bincount(y).double() / len(y))
    with pytest.raises(InputError, match="not in the data"):
        teacher(torch.ones(1, 64, dtype=torch.int64))
    with pytest.raises(InputError, match="use full_information"):
        refined(teacher, 1)
    assert torch.equal(full_information(teacher).label(x), y)
    twice = torch.cat([x[:1], x[:1]])
    with pytest.raises(InputError, match="must be a function of x"):
        Empirical(twice, labels=torch.tensor([0, 1]))


def test_a_network_of_torch_is_a_student(digits, generator):
    """A convolution without padding has the same nodes as a LocalNetwork with its weights."""
    x, _ = digits
    net = nn.Sequential(nn.Conv2d(1, 3, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)).double()
    teacher = Teacher(fields_of(net, (8, 8)), rules.quantised_convolution(2, generator), Empirical(x))
    seen = observe_student(net, teacher)
    x, p = teacher.inputs.support()
    images = x.double().view(-1, 1, 8, 8)
    torch.testing.assert_close(seen.states["h1_3"].output, net[:2](images)[:, :, 1, 1])
    target = teacher.targets[teacher(x)["top"]]
    torch.testing.assert_close(seen.gradients["top"], target - net(images))
    loss = (p @ (target - net(images)).square().sum(dim=1)) / 2
    (move,) = torch.autograd.grad(loss, net[0].weight)
    parts = [(f"h1_{i}", f"x{corner}") for i, corner in enumerate((0, 4, 32, 36))]
    by_hand = -sum((p * seen.gradients[region][:, 2] * seen.inputs[leaf][:, 0]).sum() for region, leaf in parts)
    torch.testing.assert_close(by_hand, move[2, 0, 0, 0])
    assert conditions(net, teacher).worst["broadness"] > 0


def test_a_padded_network_is_a_student(digits, generator):
    x, _ = digits
    net = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4), nn.Flatten(), nn.Linear(8, 4)
    ).double()
    fields = fields_of(nn.Sequential(net[0]), (8, 8))
    teacher = Teacher(fields, rules.quantised_convolution(2, generator), Empirical(x[:60]))
    assert len(fields.positions("h1_0")) == 4
    assert len(fields.positions("h1_9")) == 9
    seen = observe_student(net, teacher)
    torch.testing.assert_close(seen.states["h1_0"].raw, net[0](seen.x.double().view(-1, 1, 8, 8))[:, :, 0, 0])


def test_other_students_are_refused_in_words(teacher):
    with pytest.raises(InputError, match=r"the network's gates form .* the teacher has"):
        observe_student(
            nn.Sequential(nn.Conv2d(1, 4, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4)).double(), teacher
        )
    with pytest.raises(InputError, match="takes neither images of one channel nor vectors"):
        observe_student(nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU()).double(), teacher)
