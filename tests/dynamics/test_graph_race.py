"""Races over graphs: velocities against differences of the loss, the reduction against whole matrices, refusals."""

import numpy as np
import pytest
import torch

from gatelab.dynamics import NeuralRace, PathwayFlow, context_moments
from gatelab.dynamics.graph_race import PathwayGraph, TaskContext, aligned_start
from gatelab.errors import InputError
from gatelab.models import OpenGates, PathwayNetwork

EDGES = [("a", "s"), ("b", "s"), ("s", "u"), ("u", "y"), ("u", "z"), ("a", "d"), ("d", "y"), ("a", "y")]
SIZES = {"a": 3, "b": 4, "s": 5, "u": 4, "y": 3, "z": 2, "d": 3}


def tasks(rng, modes=2, reduced=None):
    """Two tasks that share an edge, with moments in common singular vectors; reduced: one number for each mode."""
    bases = {node: np.linalg.qr(rng.standard_normal((size, modes)))[0] for node, size in SIZES.items()}
    variance, strength = {"a": np.array([1.0, 0.5]), "b": np.array([0.7, 1.3])}, np.array([1.5, 0.6])

    def moment(left, values, right):
        return values[:, None, None] if reduced else bases[left] @ np.diag(values) @ bases[right].T

    def second(node):
        return moment(node, variance[node], node)

    first = TaskContext(0.6, frozenset("sud"), {"a": second("a")}, {("y", "a"): moment("y", strength, "a")}, 2.0)
    other = TaskContext(0.4, frozenset("su"), {"b": second("b")}, {("z", "b"): moment("z", 0.8 * strength, "b")}, 1.0)
    return PathwayGraph(EDGES, [first, other]), bases


def test_velocity_is_minus_the_gradient(generator):
    graph, _ = tasks(np.random.default_rng(0))
    rng = np.random.default_rng(1)
    weights = {(s, t): rng.standard_normal((SIZES[t], SIZES[s])) for s, t in EDGES}
    gates = rng.random((2, len(graph.hidden)))
    rates, gate_rates, _ = graph.velocity(weights, gates)
    step = 1e-6
    for edge in EDGES:
        place = (0, 1)
        losses = []
        for sign in (1, -1):
            moved = {key: weight.copy() for key, weight in weights.items()}
            moved[edge][place] += sign * step
            losses.append(graph.velocity(moved, gates)[2])
        assert rates[edge][place] == pytest.approx((losses[1] - losses[0]) / (2 * step), abs=1e-7)
    for task in range(2):
        for node in range(len(graph.hidden)):
            losses = []
            for sign in (1, -1):
                moved = gates.copy()
                moved[task, node] += sign * step
                losses.append(graph.velocity(weights, moved)[2])
            assert gate_rates[task, node] == pytest.approx((losses[1] - losses[0]) / (2 * step), abs=1e-7)


def test_the_reduction_is_the_whole_flow():
    whole, bases = tasks(np.random.default_rng(0))
    reduced, _ = tasks(np.random.default_rng(0), reduced=True)
    strength = {edge: np.array([0.05, 0.08]) for edge in EDGES}
    times = [0.0, 2.0, 5.0, 10.0]
    start = aligned_start(whole, SIZES, strength, bases)
    full = whole.solve(start, times)
    small = reduced.solve({edge: values[:, None, None] for edge, values in strength.items()}, times)
    np.testing.assert_allclose(full.loss, small.loss, atol=1e-7)
    assert full.loss[-1] < 0.8 * full.loss[0]
    for s, t in EDGES:
        modes = np.einsum("kr,tkd,dr->tr", bases[t], full.weights[s, t], bases[s])
        np.testing.assert_allclose(modes, small.weights[s, t][:, :, 0, 0], atol=1e-6)
    assert whole.pathways(0) == [("a", "d", "y"), ("a", "s", "u", "y"), ("a", "y")]
    assert whole.pathways(1) == [("b", "s", "u", "z")]
    assert whole.strength(("a", "d", "y"), {e: w[-1] for e, w in full.weights.items()}).shape == (3, 3)


def test_one_hidden_node_is_the_neural_race(generator):
    network = PathwayNetwork(2, 2, [OpenGates(1)], [2], generator=generator)
    x = torch.eye(2)
    race = NeuralRace(context_moments(network, x, torch.diag(torch.tensor([1.0, 0.4]))))
    times = [0.0, 3.0, 10.0]
    exact = race.strengths(torch.tensor(times), 0.01)[0]
    half = np.array([0.5, 0.5])[:, None, None]
    target = np.array([0.5, 0.2])[:, None, None]
    graph = PathwayGraph(
        [("x", "h"), ("h", "y")], [TaskContext(1.0, frozenset("h"), {"x": half}, {("y", "x"): target})]
    )
    start = {edge: np.full((2, 1, 1), 0.1) for edge in graph.edges}
    solved = graph.solve(start, times)
    product = solved.weights["h", "y"] * solved.weights["x", "h"]
    np.testing.assert_allclose(product[:, :, 0, 0], exact.numpy(), atol=1e-7)


def test_routing_is_learnt_where_tasks_conflict():
    """Two tasks want opposite outputs for one input: with both nodes open neither can be learnt."""
    one = np.ones((1, 1))
    tasks = [TaskContext(0.5, frozenset("st"), {"a": one}, {("y", "a"): sign * one}, 1.0) for sign in (1, -1)]
    graph = PathwayGraph([("a", "s"), ("s", "y"), ("a", "t"), ("t", "y")], tasks)
    rng = np.random.default_rng(0)
    start = {edge: 0.3 * rng.standard_normal((1, 1)) for edge in graph.edges}
    learnt = graph.solve(start, [0.0, 300.0], routing=0.1 * rng.standard_normal((2, 2)))
    assert learnt.gates is not None
    assert learnt.loss[-1] < 0.01
    assert (np.abs(learnt.gates[-1] - learnt.gates[0]) > 0.3).any()
    assert graph.solve(start, [0.0, 100.0]).loss[-1] == pytest.approx(0.5, abs=1e-3)


def test_tasks_may_give_their_gates(generator):
    """Gates that depend on the task, not on x, need no gate functions and no moments made by hand."""
    x, y = torch.randn(20, 3, generator=generator), torch.randn(20, 2, generator=generator)
    task = torch.arange(20) % 2
    opened = torch.nn.functional.one_hot(task, 2).bool()
    network = PathwayNetwork(3, 2, [OpenGates(2)], [2], generator=generator)
    moments = context_moments(network, x, y, opened=[opened])
    torch.testing.assert_close(moments.input_output([1]), y[task == 1].T @ x[task == 1] / 20)
    assert PathwayFlow(moments, network).solve(torch.tensor([0.0, 1.0]))[0].shape == (2, 4, 3)
    with pytest.raises(InputError, match="one for each hidden layer"):
        context_moments(network, x, y, opened=[opened[:, :1]])


@pytest.mark.parametrize(
    ("edges", "change", "message"),
    [
        ([("a", "b"), ("b", "a")], {}, "a cycle"),
        ([("x", "h"), ("h", "y")], {"share": 0.5}, "sum to 0.5"),
        ([("x", "h"), ("h", "y")], {"open_nodes": frozenset({"g"})}, "names \\['g'\\]"),
        ([("x", "h"), ("h", "y")], {"target": {("h", "x"): np.ones((1, 1))}}, "not \\(output, active input\\)"),
    ],
)
def test_impossible_graphs_are_refused(edges, change, message):
    task = {"share": 1.0, "open_nodes": frozenset("h"), "variance": {"x": np.ones((1, 1))}, "target": {}} | change
    with pytest.raises(InputError, match=message):
        PathwayGraph(edges, [TaskContext(**task)])
