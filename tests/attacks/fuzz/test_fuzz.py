"""Random networks against brute force; ``python -m tests.attacks.fuzz 2000`` prints what is refused, and why."""

import pytest
import torch

from tests.attacks.fuzz import reference
from tests.attacks.fuzz.checks import refusals
from tests.attacks.fuzz.generator import FIRST_SOFT, random_program
from tests.references.replay import exact_kernel

pytestmark = pytest.mark.attack("fuzz")


# Fifty networks with those below: the slow test has these too.
LONG = {2, 3, 4, 8, 11, 12, 14, 27, 28, 33, 35, 40, 42, 44}


@pytest.mark.parametrize("seed", [*sorted({*range(50)} - LONG), *range(FIRST_SOFT, FIRST_SOFT + 8)])
def test_network(seed):
    refusals(seed)


# 1178: tangent kernel of a PReLU; 1666, 1802: path kernel of grouped convolutions behind a concatenation; 257, 536: a
# PReLU behind the last ReLU is missing among the gates; 1041: a padded image is refused as mixed; 1272: closed below
# and closed above are two states, though one bit.
@pytest.mark.parametrize("seed", [257, 536, 1041, 1178, 1272, 1666, 1802])
def test_network_that_once_was_wrong(seed):
    refusals(seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", [*range(0, 2050, 50), *range(FIRST_SOFT, FIRST_SOFT + 500, 50)])
def test_fifty_networks(first):
    for seed in range(first, first + 50):
        refusals(seed)


def test_one_seed_is_one_network():
    program = random_program(7)
    again = random_program(7)
    assert program.source() == again.source()
    assert torch.equal(program.build()(program.examples()), again.build()(again.examples()))


@pytest.mark.parametrize("seed", [16, 30, 39, 156, 188, 227])
def test_reference_agrees_with_all_sign_patterns(seed):
    """The covariances of the reference are an expectation over signs, enumerated here."""
    program = random_program(seed)
    model, x = program.build(), program.examples()
    expected = exact_kernel(model, x)
    assert torch.allclose(reference.path_kernel(program, model, x, normalise=False), expected, rtol=1e-10)
