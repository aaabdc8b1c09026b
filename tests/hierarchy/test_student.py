import pytest
import torch

from gatelab.errors import InputError
from gatelab.hierarchy import LocalNetwork, NodeOptions, Norm, Teacher, observe_student, string_fields, student_for
from gatelab.hierarchy.inputs import MarkovChain
from gatelab.hierarchy.rules import parity, random_table
from tests.references.hierarchy import backward, forward

CHAIN = MarkovChain(4, torch.tensor([0.3, 0.7]), torch.tensor([[0.9, 0.1], [0.4, 0.6]]))


@pytest.fixture
def pair(generator):
    teacher = Teacher(string_fields(4, [2], [1]), random_table(3, generator), CHAIN)
    return teacher, student_for(teacher, 3, generator=generator)


def test_nodes_and_gradients_input_by_input(pair):
    teacher, student = pair
    with torch.no_grad():
        for bias in student.biases.values():
            bias.uniform_(-0.2, 0.2)
    seen = observe_student(student, teacher)
    targets = teacher.target(seen.x)
    for row, x in enumerate(seen.x):
        outputs, gates = forward(student, x)
        gradients = backward(student, outputs, gates, targets[row].tolist())
        for region in student.fields.inner:
            assert seen.states[region].output[row].tolist() == pytest.approx(outputs[region])
            assert seen.gradients[region][row].tolist() == pytest.approx(gradients[region])
            if student.options[region].relu:
                assert seen.states[region].gate[row].tolist() == gates[region]


def test_marginals_are_averages(pair):
    teacher, student = pair
    seen = observe_student(student, teacher)
    z, p = seen.z["h1_1"], seen.probability
    for a in range(3):
        chosen = z == a
        mean = (p[chosen] @ seen.states["h1_1"].output[chosen]) / p[chosen].sum()
        torch.testing.assert_close(seen.activation("h1_1")[a], mean)
        torch.testing.assert_close(seen.weighted_gradient("h1_1")[a], p[chosen] @ seen.gradients["h1_1"][chosen])
    same = (seen.x[:, 1:3] == torch.tensor([1, 0])).all(dim=1)
    expected = (p[same] @ seen.gradients["top"][same]) / p[same].sum()
    torch.testing.assert_close(seen.given_contents(seen.gradients["top"], "h1_1")[same][0], expected)


def test_a_node_sees_its_region_only(pair):
    _, student = pair
    x = torch.tensor([[0, 1, 1, 0]])
    before = student.states(x)["h1_0"].output
    after = student.states(torch.tensor([[0, 1, 0, 1]]))["h1_0"].output
    torch.testing.assert_close(before, after)


@pytest.mark.parametrize("norm", list(Norm))
def test_batch_norm_normalises_at_its_place(norm, generator):
    teacher = Teacher(string_fields(4, [2]), parity, CHAIN)
    student = student_for(teacher, 3, hidden=NodeOptions(norm=norm, eps=1e-12), generator=generator)
    x, p = teacher.inputs.support()
    state = student.states(x, p)["h1_0"]
    normalised = {Norm.NONE: None, Norm.AFTER_LINEAR: state.gated, Norm.AFTER_RELU: state.output}[norm]
    if normalised is None:
        torch.testing.assert_close(state.output, torch.relu(state.raw))
        return
    varying = (state.raw if norm is Norm.AFTER_LINEAR else state.active).std(dim=0) > 1e-3
    assert bool(varying.any())
    torch.testing.assert_close(p @ normalised, torch.zeros(3), atol=1e-12, rtol=0)
    torch.testing.assert_close((p @ normalised.square())[varying], torch.ones(int(varying.sum())), atol=1e-5, rtol=0)


def test_uniform_batch_norm_is_torchs(generator):
    student = LocalNetwork(string_fields(4, []), 1, 2, top=NodeOptions(relu=False, norm=Norm.AFTER_LINEAR, eps=1e-5),
                           generator=generator)  # fmt: skip
    x = torch.randint(2, (9, 4), generator=generator)
    raw = student.states(x)["top"].raw
    torch.testing.assert_close(student(x), torch.nn.BatchNorm1d(2)(raw))


def test_custom_encodings_of_leaves(generator):
    code = torch.tensor([[-1.0], [1.0]])
    fields = string_fields(2, [])
    student = LocalNetwork(fields, 1, 1, encodings={"x0": code, "x1": code}, generator=generator)
    assert student.weights["top"].shape == (2, 1)
    x = torch.tensor([[0, 1], [1, 1]])
    torch.testing.assert_close(student(x), (2.0 * x - 1) @ student.weights["top"])
    assert not any("encodings" in name for name, p in student.named_parameters() if p.requires_grad)


def test_state_dict_round_trip(pair, generator):
    teacher, student = pair
    other = student_for(teacher, 3, generator=generator)
    other.load_state_dict(student.state_dict())
    x, _ = teacher.inputs.support()
    torch.testing.assert_close(other(x), student(x))


def test_single_precision(pair):
    teacher, _ = pair
    student = student_for(teacher, 3, dtype=torch.float32)
    assert observe_student(student, teacher).gradients["h1_0"].dtype == torch.float32


def test_mismatched_arguments_are_refused(pair):
    teacher, student = pair
    with pytest.raises(InputError, match="regions h1_1 have 0 nodes"):
        student_for(teacher, {"h1_0": 2, "h1_2": 2})
    with pytest.raises(InputError, match="regions top have 0 nodes"):
        LocalNetwork(teacher.fields, 2, 0)
    with pytest.raises(InputError, match=r"expected \(n, 4\) whole numbers"):
        student(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(InputError, match="takes 2 values, its encoding has 3 rows"):
        LocalNetwork(string_fields(2, []), 1, 1, encodings={"x0": torch.eye(3)})
    with pytest.raises(InputError, match="targets have 3 columns, the student 2 outputs"):
        observe_student(LocalNetwork(teacher.fields, 2, 2), teacher)
    with pytest.raises(InputError, match="different receptive fields"):
        observe_student(LocalNetwork(string_fields(4, [2]), 2, 3), teacher)


def test_a_node_that_does_not_vary_cannot_be_normalised():
    student = LocalNetwork(string_fields(4, [2]), 2, 2, hidden=NodeOptions(norm=Norm.AFTER_RELU))
    with torch.no_grad():
        student.weights["h1_1"].fill_(-1)
    with pytest.raises(InputError, match=r"region 'h1_1', node 0: the activation is 0 for every input.*eps > 0"):
        student(torch.randint(2, (8, 4)))
