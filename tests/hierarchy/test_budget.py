"""The error budget: its ends are the true and the reformulated update."""

import pytest
import torch

from gatelab.errors import InputError
from gatelab.hierarchy import (
    GradientTrainer,
    NodeOptions,
    Norm,
    Teacher,
    TopLoss,
    exact_events,
    full_information,
    reformulate,
    string_fields,
    student_for,
)
from gatelab.hierarchy.budget import CAUSES, _Terms, error_budget
from gatelab.hierarchy.inputs import MarkovChain
from gatelab.hierarchy.marginals import observe_student
from gatelab.hierarchy.rules import random_table

CHAIN = MarkovChain(6, torch.tensor([0.3, 0.7]), torch.tensor([[0.8, 0.2], [0.4, 0.6]]))


@pytest.fixture
def lossy(generator):
    return Teacher(string_fields(6, [2, 2], [1, 1]), random_table(3, generator), CHAIN)


def test_with_all_corrections_the_recursion_is_autograd(lossy, generator):
    student = student_for(lossy, 4, generator=generator)
    terms = _Terms(student, lossy, observe_student(student, lossy))
    with torch.no_grad():
        mended, plain = terms.moves(frozenset(CAUSES)), terms.moves(frozenset())
    for region, move in GradientTrainer(student, lossy, 1.0).update().items():
        torch.testing.assert_close(mended[region], move, atol=1e-12, rtol=1e-10)
    for region, move in reformulate(student, exact_events(lossy), gates_from=lossy).weights.items():
        torch.testing.assert_close(plain[region], move, atol=1e-12, rtol=1e-10)


def test_parts_add_up_and_full_information_leaves_nothing(lossy, generator):
    student = student_for(lossy, 4, generator=generator)
    found = error_budget(student, lossy)
    assert found.total > 0.05
    assert sum(found.parts.values()) == pytest.approx(found.total)
    assert found.mended[frozenset(CAUSES)] == 0
    assert all(abs(part) > 1e-4 for part in found.parts.values())
    full = error_budget(student_for(full_information(lossy), 4, generator=generator), full_information(lossy))
    assert full.total < 1e-10
    assert max(map(abs, full.parts.values())) < 1e-10


def test_a_linear_student_has_no_decorrelation_to_blame(lossy, generator):
    student = student_for(lossy, 4, hidden=NodeOptions(relu=False), generator=generator)
    parts = error_budget(student, lossy).parts
    assert abs(parts["decorrelation"]) < 1e-12
    assert max(map(abs, parts.values())) > 0.01


def test_other_students_are_refused(lossy):
    with pytest.raises(InputError, match="without batch norm"):
        error_budget(student_for(lossy, 2, hidden=NodeOptions(norm=Norm.AFTER_RELU, eps=1e-3)), lossy)
    with pytest.raises(InputError, match="squared loss"):
        error_budget(student_for(lossy, 2, loss=TopLoss.CROSS_ENTROPY), lossy)
