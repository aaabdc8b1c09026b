import pytest
import torch

from gatelab.errors import InputError
from gatelab.hierarchy import Teacher, disentanglement_score, observe_student, selectivity, string_fields, student_for
from gatelab.hierarchy.rules import joint, parity
from gatelab.hierarchy.scores import gradient_selectivity, match


@pytest.fixture
def teacher():
    return Teacher(string_fields(4, [2]), joint, top=parity)


def by_hand(teacher, columns):
    """Return a student whose hidden nodes weigh the one-hot bits (x_0 = 0, x_0 = 1, x_1 = 0, x_1 = 1) like this."""
    student = student_for(teacher, len(columns))
    with torch.no_grad():
        for region in ("h1_0", "h1_1"):
            student.weights[region].copy_(torch.tensor([c[:4] for c in columns]).T)
            student.biases[region].copy_(torch.tensor([c[4] for c in columns]))
    return student


def test_nodes_with_one_bit_each_are_disentangled(teacher):
    student = by_hand(teacher, [[0, 0, 0, 2.0, 0], [0, 1.0, 0, 0, 0], [0, 1.0, 0, 1.0, 0]])
    found = disentanglement_score(student, teacher)
    assert found.overall == pytest.approx(1.0)
    assert found.regions["h1_0"].nodes.tolist() == [1, 0]
    # The third node sums both bits: half of its variance belongs to each.
    torch.testing.assert_close(found.regions["h1_0"].matrix[2], torch.tensor([0.5, 0.5]))


def test_one_node_cannot_stand_for_two_factors(teacher):
    found = disentanglement_score(by_hand(teacher, [[0, 1.0, 0, 0, 0]]), teacher)
    assert found.regions["h1_0"].nodes.tolist() == [0, -1]
    assert found.overall == pytest.approx(0.5)


def test_nodes_that_fire_for_one_event_are_selective(teacher):
    events = [[0, 0, 0, 0, 0.0], [0, 0, 0, 0, 0.0], [0, 0, 0, 0, 0.0], [0, 0, 0, 0, 0.0]]
    for value in range(4):
        first, second = value // 2, value % 2
        events[value][first] = events[value][2 + second] = 1.0
        events[value][4] = -1.0
    student = by_hand(teacher, events)
    found = selectivity(student, teacher)
    torch.testing.assert_close(found.regions["h1_1"].matrix.diagonal(), torch.ones(4))
    assert found.overall == pytest.approx(1.0)
    assert disentanglement_score(student, teacher).overall < 0.5


def test_dead_nodes_score_nothing(teacher):
    student = by_hand(teacher, [[0, 0, 0, 0, -1.0], [0, 1.0, 0, 0, 0]])
    found = disentanglement_score(student, teacher)
    assert found.regions["h1_0"].matrix[0].tolist() == [0, 0]
    assert torch.isfinite(selectivity(student, teacher).regions["h1_0"].matrix).all()


def test_gradients_that_teach_an_event(teacher):
    student = student_for(teacher, 3)
    seen = observe_student(student, teacher)
    found = gradient_selectivity(seen, "h1_0")
    p, z, g = seen.probability, seen.z["h1_0"], seen.gradients["h1_0"]
    here = (p[z == 2] @ g[z == 2]) / p[z == 2].sum()
    elsewhere = (p[z != 2] @ g[z != 2]) / p[z != 2].sum()
    torch.testing.assert_close(found[:, 2], here - elsewhere)


def test_the_best_assignment_is_found():
    found = match(torch.tensor([[0.9, 0.8], [0.85, 0.1]]))
    assert found.nodes.tolist() == [1, 0]
    assert found.score == pytest.approx((0.8 + 0.85) / 2)


def test_students_without_hidden_regions_are_refused():
    shallow = Teacher(string_fields(4, []), joint)
    with pytest.raises(InputError, match="no hidden region"):
        disentanglement_score(student_for(shallow, 2), shallow)
