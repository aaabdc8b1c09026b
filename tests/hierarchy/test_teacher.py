import pytest
import torch

from gatelab.errors import InputError, SupportTooLargeError
from gatelab.hierarchy import Teacher, full_information, refined, string_fields
from gatelab.hierarchy.codes import decode, encode, n_factors
from gatelab.hierarchy.inputs import Empirical, Independent, MarkovChain, Uniform, discretise
from gatelab.hierarchy.rules import (
    from_function,
    grammar,
    joint,
    lookup,
    majority,
    parity,
    per_factor,
    quantised_convolution,
    random_table,
)

CHAIN = MarkovChain(4, torch.tensor([0.3, 0.7]), torch.tensor([[0.9, 0.1], [0.4, 0.6]]))
SKEWED = Independent(torch.tensor([[0.2, 0.5, 0.3], [0.0, 0.5, 0.5]]))


def test_codes_are_digits():
    values = torch.tensor([[1, 2, 0], [0, 1, 3]])
    codes = encode(values, (2, 3, 4))
    assert codes.tolist() == [1 * 12 + 2 * 4, 1 * 4 + 3]
    assert torch.equal(decode(codes, (2, 3, 4)), values)
    with pytest.raises(SupportTooLargeError, match="63 values together"):
        encode(torch.zeros(1, 63, dtype=torch.int64), (2,) * 63)


@pytest.mark.parametrize("inputs", [Uniform(3), CHAIN, SKEWED, Empirical(torch.tensor([[0, 1], [1, 1], [0, 1]]))])
def test_samples_have_the_stated_probabilities(inputs, generator):
    x, p = inputs.support()
    assert p.sum().item() == pytest.approx(1)
    assert bool((p > 0).all())
    torch.testing.assert_close(inputs.probability(x), p)
    draws = inputs.sample(20_000, generator)
    counts = torch.stack([(draws == row).all(dim=1).double().mean() for row in x])
    error = (p * (1 - p) / 20_000).sqrt()
    assert bool(((counts - p).abs() <= 5 * error + 1e-12).all())
    assert counts.sum().item() == pytest.approx(1)  # nothing outside the support


def test_a_chain_multiplies_its_steps():
    assert CHAIN.probability(torch.tensor([[1, 0, 0, 1]])).item() == pytest.approx(0.7 * 0.4 * 0.9 * 0.1)
    assert Empirical(torch.tensor([[0, 1], [1, 1], [0, 1]])).probability(torch.tensor([[0, 1], [0, 0]])).tolist() == (
        pytest.approx([2 / 3, 0])
    )


def test_real_data_become_levels():
    x = discretise(torch.tensor([[0.0, 0.24], [0.26, 0.5], [0.76, 1.0]]), 4)
    assert x.tolist() == [[0, 0], [1, 2], [3, 3]]
    with pytest.raises(InputError, match="cannot cut values from 1 to 1"):
        discretise(torch.ones(2, 2))


@pytest.mark.parametrize("bad", [[[0.5, 0.6]], [[-0.1, 1.1]], [[0.5, float("nan")]]])
def test_rows_that_are_no_distributions_are_refused(bad):
    with pytest.raises(InputError, match=r"positions: row 0 .* must sum to one"):
        Independent(torch.tensor(bad))
    with pytest.raises(InputError, match="transition matrix: row 0"):
        MarkovChain(2, torch.tensor([0.5, 0.5]), torch.tensor([*bad, [1.0, 0.0]]))


def test_a_large_support_is_refused_with_its_size_and_the_alternative():
    with pytest.raises(
        SupportTooLargeError, match=r"40 variables take 1,099,511,627,776 .* draw samples instead .*counted_events"
    ):
        Uniform(40).support()
    assert len(Uniform(40).sample(3)) == 3


FIELDS = string_fields(4, [2])
X = torch.tensor([[0, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize(
    ("maker", "below", "top"),
    [
        (parity, [[1, 0], [0, 0], [0, 1]], [1, 0, 1]),
        (majority, [[0, 1], [1, 0], [0, 0]], [0, 0, 0]),
        (joint, [[1, 3], [3, 0], [0, 1]], [7, 12, 1]),
        (grammar({(0, 1): 1, (1, 1): 1}, 2), [[1, 1], [1, 0], [0, 1]], [1, 0, 1]),
        (from_function(lambda z: z.max(dim=1).values, 2), [[1, 1], [1, 0], [0, 1]], [1, 1, 1]),
    ],
)
def test_rules_compute_what_their_names_say(maker, below, top):
    teacher = Teacher(FIELDS, maker)
    z = teacher(X)
    assert torch.stack([z["h1_0"], z["h1_1"]], dim=1).tolist() == below
    assert teacher.label(X).tolist() == top


def test_majority_of_more_values_takes_the_smallest_of_several():
    teacher = Teacher(string_fields(3, []), majority, Uniform(3, 3))
    assert teacher.label(torch.tensor([[2, 1, 2], [2, 1, 0], [1, 1, 0]])).tolist() == [2, 0, 1]


def test_random_tables_use_every_value(generator):
    teacher = Teacher(FIELDS, random_table(3, generator))
    x, _ = teacher.inputs.support()
    assert set(teacher(x)["h1_0"].tolist()) == {0, 1, 2}


def test_factors_stay_apart():
    fields = string_fields(8, [2], leaf=2)
    teacher = Teacher(fields, per_factor(lambda bits: bits.sum(dim=1) % 2))
    x = torch.tensor([[0, 1, 1, 1, 0, 0, 1, 0]])
    z = teacher(x)
    assert z["h1_0"].tolist() == [0b10]  # first bits 0⊕1, second bits 1⊕1
    assert z["top"].tolist() == [0b00]  # 10 ⊕ 10
    assert n_factors(teacher.sizes["h1_0"], "h1_0") == 2
    with pytest.raises(InputError, match="factors need 2\\^k, all equal"):
        Teacher(string_fields(3, []), per_factor(lambda b: b[:, 0]), Uniform(3, 3))


def test_a_quantised_network_shares_its_weights(generator):
    teacher = Teacher(string_fields(8, [2, 2]), quantised_convolution(2, generator))
    x = Uniform(8).sample(50, generator)
    z = teacher(x)
    shifted = teacher(x.roll(2, dims=1))
    assert torch.equal(z["h1_0"], shifted["h1_1"])
    assert torch.equal(z["h2_0"][:0], shifted["h2_0"][:0])
    assert len({teacher.sizes[region] for region in teacher.fields.inner}) == 1


@pytest.mark.parametrize("keep", range(5))
def test_a_refined_teacher_agrees_and_remembers(keep, generator):
    fields = string_fields(5, [3], [1])
    teacher = Teacher(fields, random_table(3, generator))
    more = refined(teacher, keep)
    x, _ = teacher.inputs.support()
    assert torch.equal(more.label(x), teacher.label(x))
    torch.testing.assert_close(more.target(x), teacher.target(x))
    own, refined_z = teacher(x), more(x)
    for region in fields.inner:
        kept = x[:, list(fields.positions(region)[:keep])]
        expected = torch.cat([own[region].unsqueeze(1), kept], dim=1)
        # z' and (z, kept) are functions of each other.
        pairs = torch.unique(torch.cat([refined_z[region].unsqueeze(1), expected], dim=1), dim=0)
        assert len(pairs) == len(torch.unique(expected, dim=0)) == more.sizes[region]
        assert len(pairs) == len(pairs[:, 0].unique())


def test_full_information_keeps_every_content(generator):
    teacher = full_information(Teacher(string_fields(5, [3], [1]), random_table(2, generator), Uniform(5, 3)))
    for region in teacher.fields.inner:
        assert teacher.sizes[region] == 3 ** len(teacher.fields.positions(region))
    with pytest.raises(SupportTooLargeError, match="more than the limit"):
        full_information(Teacher(string_fields(32, []), parity))


def test_rules_that_do_not_match_their_children_are_refused():
    fine = lookup(torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(InputError, match=r"region 'top': its rule is made for children that take \(2, 3\) values"):
        Teacher(FIELDS, {"h1_0": fine, "h1_1": fine, "top": lookup(torch.zeros(2, 3, dtype=torch.int64))})
    with pytest.raises(InputError, match="missing: top, superfluous: x0"):
        Teacher(FIELDS, {"h1_0": fine, "h1_1": fine, "x0": fine})
    with pytest.raises(InputError, match=r"for 2 values give 0 … 1"):
        lookup(torch.tensor([0, 2]), 2)
    with pytest.raises(InputError, match=r"production \(0, 5\) → 1 does not fit"):
        Teacher(FIELDS, grammar({(0, 5): 1}, 2))
    with pytest.raises(InputError, match="missing: top, superfluous: none"):
        Teacher(FIELDS, {"h1_0": parity, "h1_1": parity})
    with pytest.raises(InputError, match="there are 3 labels; give one for each of 2 values"):
        Teacher(FIELDS, {"h1_0": fine, "h1_1": fine, "top": fine}, labels=torch.arange(3))
    with pytest.raises(InputError, match="there are 3 targets; give one for each of 2 values"):
        Teacher(FIELDS, {"h1_0": fine, "h1_1": fine, "top": fine}, targets=torch.zeros(3, 2))


def test_a_rule_that_leaves_its_range_is_refused():
    teacher = Teacher(FIELDS, from_function(lambda z: z.sum(dim=1), 2))
    with pytest.raises(InputError, match=r"region 'h1_0': its rule gave values 0 … 2"):
        teacher(X)


def test_mismatched_inputs_are_refused(unchecked):
    teacher = Teacher(FIELDS, parity)
    for x in (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 4), torch.zeros(0, 4, dtype=torch.int64)):
        with pytest.raises(InputError, match=r"expected \(n, 4\) whole numbers"):
            teacher(x)
    with pytest.raises(InputError, match="expected 0 … 1 at every position"):
        teacher(torch.full((1, 4), 2))
    with pytest.raises(InputError, match="the inputs have 3 positions, the receptive fields 4"):
        Teacher(FIELDS, parity, Uniform(3))
    with pytest.raises(InputError, match="need a power of two"):
        n_factors(3, "region 'top'")
