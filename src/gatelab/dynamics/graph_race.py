"""Races between pathways of an arbitrary graph: linear edges, gated nodes, tasks that open some of them (beyond gdln).

A graph may share edges between pathways, skip layers and have any depth. Nodes hold vectors, edges matrices. In every
context (a task) some nodes are open, one or more inputs are active, and some outputs have targets. The network is
linear within a context, so its gradient flow needs only the contexts' moments. If all moments share singular vectors,
weights that start aligned stay so, and each mode is a flow of one number for each edge: the neural race reduction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import inf

import numpy as np
from scipy.integrate import solve_ivp

from gatelab.dynamics.gated_flow import FlowStoppedError, check_tau
from gatelab.errors import InputError

Edge = tuple[str, str]


@dataclass(frozen=True)
class TaskContext:
    """A task: how often it comes, which nodes it opens, and the moments of its inputs and targets.

    Args:
        share: probability of the task.
        open_nodes: the open hidden nodes.
        variance: ⟨x xᵀ⟩ of each active input; active inputs are independent of each other.
        target: ⟨y xᵀ⟩ for each output that has a target and each active input. Other outputs are free in this task.
        power: ⟨‖y‖²⟩ over the outputs with targets; only the loss needs it.

    Moments are matrices (…, k, d). Leading axes hold the modes of a reduced race, which do not interact.
    """

    share: float
    open_nodes: frozenset[str]
    variance: Mapping[str, np.ndarray]
    target: Mapping[tuple[str, str], np.ndarray]
    power: np.ndarray | float = 0.0


@dataclass(frozen=True)
class GraphSolution:
    """Weights of every edge at the times, (times, …, k, d), the loss, and learnt gates, (times, tasks, nodes)."""

    times: np.ndarray
    weights: Mapping[Edge, np.ndarray]
    loss: np.ndarray
    gates: np.ndarray | None = None


class PathwayGraph:
    """Nodes joined by linear edges, and the tasks that open them.

    Args:
        edges: pairs (source, target) of node names; nodes without incoming edges are inputs, without outgoing ones
            outputs.
        contexts: the tasks.

    Raises:
        InputError: the edges form a cycle, a task names an unknown node, or the shares are not probabilities.

    Example:
        >>> one = np.ones((1, 1))
        >>> task = TaskContext(1.0, frozenset({"h"}), {"x": one}, {("y", "x"): 2 * one}, 4.0)
        >>> graph = PathwayGraph([("x", "h"), ("h", "y")], [task])
        >>> start = {edge: 0.1 * one for edge in graph.edges}
        >>> round(float(graph.solve(start, [0.0, 20.0]).loss[-1]), 6)
        0.0
    """

    def __init__(self, edges: Sequence[Edge], contexts: Sequence[TaskContext]):
        self.edges, self.contexts = tuple(edges), tuple(contexts)
        sources: dict[str, set[str]] = {}
        for source, target in self.edges:
            sources.setdefault(target, set()).add(source)
            sources.setdefault(source, set())
        try:
            self._order = tuple(TopologicalSorter(sources).static_order())
        except CycleError as error:
            raise InputError(f"the edges form a cycle: {error.args[1]}; remove one of them") from error
        self.inputs = tuple(node for node in self._order if not sources[node])
        used = {source for source, _ in self.edges}
        self.outputs = tuple(node for node in self._order if node not in used)
        self.hidden = tuple(node for node in self._order if node in used and sources[node])
        self._into = {node: tuple(edge for edge in self.edges if edge[1] == node) for node in self._order}
        self._check()

    def _check(self) -> None:
        if len(set(self.edges)) != len(self.edges) or not self.edges or not self.contexts:
            raise InputError("edges are missing or repeated, or there is no task; give each edge once, and a task")
        for number, task in enumerate(self.contexts):
            named = set(task.open_nodes) | set(task.variance) | {node for pair in task.target for node in pair}
            if unknown := named - set(self._order):
                raise InputError(
                    f"task {number} names {sorted(unknown)}, which no edge reaches; add edges, or remove these nodes"
                )
            wrong = [pair for pair in task.target if pair[0] not in self.outputs or pair[1] not in task.variance]
            if wrong:
                raise InputError(
                    f"task {number}: targets {wrong} are not (output, active input); give ⟨y xᵀ⟩ for these"
                )
        total = sum(task.share for task in self.contexts)
        if min(task.share for task in self.contexts) < 0 or abs(total - 1) > 1e-9:
            raise InputError(f"the tasks' shares sum to {total:g}; give probabilities with sum 1")

    def pathways(self, context: int) -> list[tuple[str, ...]]:
        """Return the open pathways of a task, as nodes from an active input to an output with a target."""
        task = self.contexts[context]
        wanted = {output for output, _ in task.target}
        found: list[tuple[str, ...]] = []
        front: list[tuple[str, ...]] = [(node,) for node in self.inputs if node in task.variance]
        while front:
            path = front.pop()
            for _, node in (edge for edge in self.edges if edge[0] == path[-1]):
                if node in wanted:
                    found.append((*path, node))
                elif node in task.open_nodes:
                    front.append((*path, node))
        return sorted(found)

    def strength(self, path: Sequence[str], weights: Mapping[Edge, np.ndarray]) -> np.ndarray:
        """Return the product of the weights along a pathway."""
        product = weights[path[0], path[1]]
        for edge in pairwise(path[1:]):
            product = weights[edge] @ product
        return product

    def velocity(
        self, weights: Mapping[Edge, np.ndarray], gates: np.ndarray | None = None
    ) -> tuple[dict[Edge, np.ndarray], np.ndarray, float]:
        """Return −∂L/∂W of every edge, −∂L/∂gate of every task and hidden node, and L.

        Args:
            weights: W of every edge.
            gates: how far each task opens each hidden node; by default as ``open_nodes`` says.

        Returns:
            The rates of weights, the rates of gates (tasks, nodes) summed over modes, and the loss.
        """
        opened = self.gates() if gates is None else gates
        rates = {edge: np.zeros_like(weight) for edge, weight in weights.items()}
        gate_rates, loss = np.zeros_like(opened), 0.0
        place = {node: number for number, node in enumerate(self.hidden)}
        for number, task in enumerate(self.contexts):
            for source in task.variance:
                before, values = self._forward(weights, opened[number], source, task)
                signals: dict[str, np.ndarray] = {}
                for output in self.outputs:
                    if output not in values or not any(pair[0] == output for pair in task.target):
                        continue
                    second = task.variance[source]
                    total = values[output]
                    wanted = task.target.get((output, source), np.zeros_like(total))
                    signals[output] = wanted - total @ second
                    loss += task.share * float((0.5 * (total @ second) * total - wanted * total).sum())
                for node in reversed(self._order):
                    if node not in signals or node in self.inputs:
                        continue
                    signal = signals[node]
                    if node in place:
                        gate_rates[number, place[node]] += task.share * float((signal * before[node]).sum())
                        signal = signal * opened[number, place[node]]
                    for edge in self._into[node]:
                        if edge[0] in values:
                            rates[edge] += task.share * signal @ values[edge[0]].swapaxes(-1, -2)
                            passed = weights[edge].swapaxes(-1, -2) @ signal
                            signals[edge[0]] = signals[edge[0]] + passed if edge[0] in signals else passed
            loss += task.share * float(np.sum(task.power)) / 2
        return rates, gate_rates, loss

    def _forward(
        self, weights: Mapping[Edge, np.ndarray], opened: np.ndarray, source: str, task: TaskContext
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return the maps from an input to every node it reaches, before and after the node's gate."""
        place = {node: number for number, node in enumerate(self.hidden)}
        second = task.variance[source]
        values = {source: np.broadcast_to(np.eye(second.shape[-1]), second.shape)}
        before: dict[str, np.ndarray] = {}
        for node in self._order:
            arriving = [weights[edge] @ values[edge[0]] for edge in self._into[node] if edge[0] in values]
            if arriving and (node not in place or opened[place[node]] != 0):
                before[node] = sum(arriving[1:], arriving[0])
                values[node] = before[node] * (opened[place[node]] if node in place else 1.0)
        return before, values

    def gates(self) -> np.ndarray:
        """Return which hidden nodes each task opens, 0 or 1, (tasks, nodes)."""
        return np.array([[float(node in task.open_nodes) for node in self.hidden] for task in self.contexts])

    def solve(
        self,
        start: Mapping[Edge, np.ndarray],
        times: Sequence[float],
        tau: float = 1.0,
        *,
        routing: np.ndarray | None = None,
    ) -> GraphSolution:
        """Follow the gradient flow of all edges, by a Runge-Kutta method of order eight.

        Args:
            start: W(0) of every edge.
            times: rising times from 0 on.
            tau: τ, the time constant.
            routing: logits of the gates, (tasks, nodes), if tasks learn which nodes to open; gates are their sigmoids.

        Returns:
            The weights, the loss and the learnt gates at each time.
        """
        check_tau(tau)
        wanted = np.asarray(times, dtype=float)
        if not len(wanted) or not wanted[0] >= 0 or not wanted[-1] < inf or (np.diff(wanted) <= 0).any():
            raise InputError("times must be finite and rise, from 0 on; sort them and remove duplicates")
        if set(start) != set(self.edges):
            raise InputError(f"start has weights for {len(start)} edges, the graph has {len(self.edges)}; give all")
        shapes = [start[edge].shape for edge in self.edges]
        sizes = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])

        def unpack(flat: np.ndarray) -> tuple[dict[Edge, np.ndarray], np.ndarray | None]:
            weights = {
                edge: flat[low:high].reshape(shape)
                for edge, shape, low, high in zip(self.edges, shapes, sizes[:-1], sizes[1:], strict=True)
            }
            logits = flat[sizes[-1] :].reshape(len(self.contexts), -1) if routing is not None else None
            return weights, None if logits is None else 1 / (1 + np.exp(-logits))

        def rate(_time: float, flat: np.ndarray) -> np.ndarray:
            weights, gates = unpack(flat)
            of_edges, of_gates, _ = self.velocity(weights, gates)
            parts = [of_edges[edge].ravel() for edge in self.edges]
            if gates is not None:
                parts.append((of_gates * gates * (1 - gates)).ravel())
            return np.concatenate(parts) / tau

        flat = np.concatenate(
            [*(start[edge].ravel() for edge in self.edges), *([] if routing is None else [routing.ravel()])]
        )
        solved = solve_ivp(rate, (0.0, wanted[-1]), flat, "DOP853", wanted, rtol=1e-9, atol=1e-11)
        if not solved.success:
            raise FlowStoppedError(f"the race could not be followed to t = {wanted[-1]:g}: {solved.message}")
        states = [unpack(state) for state in solved.y.T]
        losses = np.array([self.velocity(*state)[2] for state in states])
        weights = {edge: np.stack([state[0][edge] for state in states]) for edge in self.edges}
        gates = [gate for _, gate in states if gate is not None]
        return GraphSolution(wanted, weights, losses, np.stack(gates) if gates else None)


def aligned_start(
    graph: PathwayGraph, sizes: Mapping[str, int], strength: Mapping[Edge, np.ndarray], bases: Mapping[str, np.ndarray]
) -> dict[Edge, np.ndarray]:
    """Return weights W = Q_t diag(s) Q_sᵀ whose modes follow a reduced race with the strengths s.

    Args:
        graph: the graph.
        sizes: dimension of every node.
        strength: s of every edge, one number for each mode.
        bases: orthonormal columns Q of every node, one for each mode.

    Returns:
        W(0) of every edge.
    """
    for node, basis in bases.items():
        if basis.shape[0] != sizes[node] or not np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-9):
            raise InputError(
                f"node {node}: the basis is {basis.shape}; give {sizes[node]} rows and orthonormal columns"
            )
    return {(s, t): bases[t] @ np.diag(strength[s, t]) @ bases[s].T for s, t in graph.edges}
