"""Flows, moments, hierarchies, data and models with wrong shapes, types and numbers: refused."""

import pytest
import torch
from torch import nn

from gatelab import data, dynamics, hierarchy, models
from tests.attacks.outcomes import refusal

pytestmark = pytest.mark.attack("other functions")

nan, inf = float("nan"), float("inf")
x, y = torch.randn(6, 3, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
open_gates = torch.ones(6, 2, dtype=torch.bool)
moments = dynamics.moments_of(x, y, open_gates)
A, b = moments.A, moments.b
ring = data.NLGP((1.0, 0.1), 3.0, (8,))
pulses = data.SinglePulse(((3, 4), (1, 2)), (8,))
fields = hierarchy.string_fields(4, [2])
logits = torch.tensor([0.5, 0.5], dtype=torch.float64)


def teacher():
    return hierarchy.Teacher(fields, hierarchy.rules.parity)


def pathway(dim=3, outputs=2):
    gates = models.HalfSpaceGates(torch.eye(dim)[:2])
    return models.PathwayNetwork(dim, outputs, [gates], [2])


DYNAMICS = {
    "flow, A not square": lambda: dynamics.GatedLinearFlow(A[:, :5], b, 2),
    "flow, b too short": lambda: dynamics.GatedLinearFlow(A, b[:5], 2),
    "flow, A with NaN": lambda: dynamics.GatedLinearFlow(A * nan, b, 2),
    "flow, b with infinity": lambda: dynamics.GatedLinearFlow(A, b * inf, 2),
    "flow, A not symmetric": lambda: dynamics.GatedLinearFlow(A + torch.triu(torch.ones(6, 6), 1), b, 2),
    "flow, A not semi-definite": lambda: dynamics.GatedLinearFlow(-A, b, 2),
    "flow, K 0": lambda: dynamics.GatedLinearFlow(A, b, 0),
    "flow, K 2.5": lambda: dynamics.GatedLinearFlow(A, b, 2.5),
    "flow, K that does not divide": lambda: dynamics.GatedLinearFlow(A, b, 4),
    "flow, tau 0": lambda: dynamics.GatedLinearFlow(A, b, 2, tau=0.0),
    "flow, tau -1": lambda: dynamics.GatedLinearFlow(A, b, 2, tau=-1.0),
    "flow, tau NaN": lambda: dynamics.GatedLinearFlow(A, b, 2, tau=nan),
    "flow, initial of another shape": lambda: dynamics.GatedLinearFlow(A, b, 2, initial=torch.zeros(3, 3)),
    "flow, initial with NaN": lambda: dynamics.GatedLinearFlow(A, b, 2, initial=torch.full((2, 3), nan)),
    "flow, weights at a negative time": lambda: dynamics.GatedLinearFlow(A, b, 2).weights(-1.0),
    "flow, weights at NaN": lambda: dynamics.GatedLinearFlow(A, b, 2).weights(nan),
    "flow, weights at a string": lambda: dynamics.GatedLinearFlow(A, b, 2).weights("1"),
    "moments, y too short": lambda: dynamics.moments_of(x, y[:4], open_gates),
    "moments, y as a column": lambda: dynamics.moments_of(x, y[:, None], open_gates),
    "moments, gates of other examples": lambda: dynamics.moments_of(x, y, open_gates[:4]),
    "moments, gates as numbers": lambda: dynamics.moments_of(x, y, open_gates.double() * 0.5),
    "moments, x with NaN": lambda: dynamics.moments_of(x * nan, y, open_gates),
    "moments, y with NaN": lambda: dynamics.moments_of(x, y * nan, open_gates),
    "moments of nothing": lambda: dynamics.moments_of(x[:0], y[:0], open_gates[:0]),
    "moments, integers": lambda: dynamics.moments_of(x.long(), y, open_gates),
    "piecewise flow without pieces": lambda: dynamics.PiecewiseFlow([], []),
    "piecewise flow, starts not in order": lambda: dynamics.PiecewiseFlow([0.0, 2.0, 1.0], [moments] * 3),
    "piecewise flow, more starts than moments": lambda: dynamics.PiecewiseFlow([0.0, 1.0], [moments]),
    "piecewise flow, tau -1": lambda: dynamics.PiecewiseFlow([0.0], [moments], tau=-1.0),
    "piecewise flow, starts NaN": lambda: dynamics.PiecewiseFlow([nan], [moments]),
    "self-gated flow, horizon -1": lambda: dynamics.self_gated_flow(x, y, torch.randn(2, 3), -1.0),
    "self-gated flow, horizon NaN": lambda: dynamics.self_gated_flow(x, y, torch.randn(2, 3), nan),
    "self-gated flow, initial of other features": lambda: dynamics.self_gated_flow(x, y, torch.randn(2, 4), 1.0),
    "self-gated flow, y as a column": lambda: dynamics.self_gated_flow(x, y[:, None], torch.randn(2, 3), 1.0),
    "self-gated flow, tolerance 0": lambda: dynamics.self_gated_flow(x, y, torch.randn(2, 3), 1.0, tolerance=-0.1),
    "greedy gates, count 0": lambda: dynamics.greedy_gates(moments, 0),
    "greedy gates, count 9": lambda: dynamics.greedy_gates(moments, 9),
    "greedy gates, count 1.5": lambda: dynamics.greedy_gates(moments, 1.5),
    "exhaustive gates, count 0": lambda: dynamics.exhaustive_gates(moments, 0),
    "exhaustive gates, most 0": lambda: dynamics.exhaustive_gates(moments, 1, most=0),
    "exact moments of a tensor": lambda: dynamics.exact_moments(x, models.OpenGates(2)),
    "exact moments, gates of another size": lambda: dynamics.exact_moments(
        pulses, models.HalfSpaceGates(torch.ones(2, 5))
    ),
    "estimated moments, count 0": lambda: dynamics.estimate_moments(ring, models.OpenGates(2), 0),
    "estimated moments, count 2.5": lambda: dynamics.estimate_moments(ring, models.OpenGates(2), 2.5),
    "Gabor fit of NaN": lambda: dynamics.fit_gabor(torch.full((8,), nan)),
    "Gabor fit of zeros": lambda: dynamics.fit_gabor(torch.zeros(8)),
    "Gabor fit of one site": lambda: dynamics.fit_gabor(torch.ones(1)),
    "Gabor fit of a matrix": lambda: dynamics.fit_gabor(torch.ones(3, 3)),
    "participation ratio of zeros": lambda: dynamics.inverse_participation_ratio(torch.zeros(4)),
    "participation ratio of NaN": lambda: dynamics.inverse_participation_ratio(torch.full((4,), nan)),
    "participation ratio of nothing": lambda: dynamics.inverse_participation_ratio(torch.zeros(2, 0)),
    "participation ratio of a list": lambda: dynamics.inverse_participation_ratio([1.0, 2.0]),
    "locations of other shapes": lambda: dynamics.match_location(torch.randn(2, 8), torch.randn(2, 7)),
    "locations of other sites": lambda: dynamics.match_location(torch.randn(2, 8), torch.randn(2, 8), (3,)),
    "flip rate of one record": lambda: dynamics.sign_flip_rate(torch.ones(1, 2, 3, dtype=torch.bool)),
    "flip rate of numbers": lambda: dynamics.sign_flip_rate(torch.randn(3, 2, 4)),
    "context moments, y of other outputs": lambda: dynamics.context_moments(pathway(), x, torch.randn(6, 5)),
    "context moments, x of other features": lambda: dynamics.context_moments(pathway(), x[:, :2], torch.randn(6, 2)),
    "context moments with NaN": lambda: dynamics.context_moments(pathway(), x * nan, torch.randn(6, 2)),
    "tracker of wrong labels": lambda: dynamics.GateTracker(models.mlp([3, 4, 1]), x, y[:3]).record(0),
    "tracker, x of other features": lambda: dynamics.GateTracker(models.mlp([3, 4, 1]), torch.randn(6, 5)).record(0),
    "tracker of NaN labels": lambda: dynamics.GateTracker(models.mlp([3, 4, 1]), x, y * nan).record(0),
}

HIERARCHY = {
    "string, length 0": lambda: hierarchy.string_fields(0, [2]),
    "string, kernel larger than the string": lambda: hierarchy.string_fields(4, [9]),
    "string, kernel 0": lambda: hierarchy.string_fields(4, [0]),
    "string, kernel 1.5": lambda: hierarchy.string_fields(4, [1.5]),
    "string, strides of another number": lambda: hierarchy.string_fields(8, [2, 2], [1]),
    "string, stride 0": lambda: hierarchy.string_fields(8, [2], [0]),
    "image, height -1": lambda: hierarchy.image_fields(-1, 4, [2]),
    "image, kernel larger than the image": lambda: hierarchy.image_fields(4, 4, [7]),
    "fields of nothing": lambda: hierarchy.ReceptiveFields({}),
    "fields, an empty region": lambda: hierarchy.ReceptiveFields({"a": []}),
    "fields, a negative position": lambda: hierarchy.ReceptiveFields({"a": [-1, 0]}),
    "fields, two equal regions": lambda: hierarchy.ReceptiveFields({"a": [0, 1], "b": [0, 1]}),
    "fields of an empty shape": lambda: hierarchy.fields_of(nn.Sequential(nn.Conv2d(1, 2, 2)), ()),
    "student, nodes 0": lambda: hierarchy.LocalNetwork(fields, 0, 2),
    "student, nodes 1.5": lambda: hierarchy.LocalNetwork(fields, 1.5, 2),
    "student, outputs 0": lambda: hierarchy.LocalNetwork(fields, 2, 0),
    "student, input of numbers": lambda: hierarchy.LocalNetwork(fields, 2, 2)(torch.randn(3, 4)),
    "student, input of other length": lambda: hierarchy.LocalNetwork(fields, 2, 2)(
        torch.zeros(3, 9, dtype=torch.int64)
    ),
    "student, input of unknown values": lambda: hierarchy.LocalNetwork(fields, 2, 2)(
        torch.full((3, 4), 7, dtype=torch.int64)
    ),
    "disentangled, NaN": lambda: hierarchy.nearest_disentangled(torch.full((4, 2), nan)),
    "disentangled, three rows": lambda: hierarchy.nearest_disentangled(torch.randn(3, 2)),
    "disentangled, marginals of another size": lambda: hierarchy.nearest_disentangled(
        torch.randn(4, 2), torch.ones(5, 2)
    ),
    "batch norm report without batch norm": lambda: hierarchy.batchnorm_projection_report(
        nn.Linear(3, 2), x, lambda out: out.sum()
    ),
    "batch norm report of a loss that is no number": lambda: hierarchy.batchnorm_projection_report(
        nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), x, lambda out: out
    ),
    "batch norm report of one example": lambda: hierarchy.batchnorm_projection_report(
        nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), x[:1], lambda out: out.sum()
    ),
    "given events, prior that does not sum to one": lambda: hierarchy.given_events(
        fields, torch.tensor([0.9, 0.9]), {}
    ),
    "given events, negative prior": lambda: hierarchy.given_events(fields, torch.tensor([1.5, -0.5]), {}),
    "given events without matrices": lambda: hierarchy.given_events(fields, logits, {}),
}

DATA = {
    "unknown data": lambda: data.load("imagenet"),
    "data without a name": lambda: data.load(None),
    "fetch of unknown data": lambda: data.fetch("imagenet", "no/such/folder"),
    "circle of no points": lambda: data.circle(0),
    "circle of 2.5 points": lambda: data.circle(2.5),
    "circle of negative frequency": lambda: data.circle(10, low=-1.5),
    "process of negative length": lambda: data.NLGP((-1.0, 1.0), 1.0),
    "process of zero gain": lambda: data.NLGP((1.0, 2.0), 0.0),
    "process of NaN gain": lambda: data.NLGP((1.0, 2.0), nan),
    "process of three lengths": lambda: data.NLGP((1.0, 2.0, 3.0), 1.0),
    "process on no sites": lambda: data.NLGP((1.0, 2.0), 1.0, ()),
    "process on a ring of half a site": lambda: data.NLGP((1.0, 2.0), 1.0, (0.5,)),
    "sample of -1": lambda: ring.sample(-1),
    "sample of 2.5": lambda: ring.sample(2.5),
    "pulses wider than the ring": lambda: data.SinglePulse(((9, 12), (2, 4)), (8,)),
    "pulses of width 0": lambda: data.SinglePulse(((0, 1), (2, 4)), (8,)),
    "pulses of reversed widths": lambda: data.SinglePulse(((4, 3), (2, 4)), (8,)),
    "clone of a tensor": lambda: data.GaussianClone(x),
    "clusters 0": lambda: data.modified_fashion(data.load("digits"), clusters=0),
    "a subset of -1": lambda: data.load("digits").subset(-1, 10),
    "a subset of 2.5": lambda: data.load("digits").subset(2.5, 10),
    "shrunk by 0": lambda: data.load("digits").shrunk(0),
    "shrunk by 3 of 8": lambda: data.load("digits").shrunk(3),
}

MODELS = {
    "mlp of one width": lambda: models.mlp([3]),
    "mlp of no widths": lambda: models.mlp([]),
    "mlp of width 0": lambda: models.mlp([3, 0, 1]),
    "mlp of width 2.5": lambda: models.mlp([3, 2.5, 1]),
    "mlp of a number": lambda: models.mlp(3),
    "dln of width -1": lambda: models.dln([3, -1, 1]),
    "DGN of one width": lambda: models.DeepGatedNetwork([3]),
    "DGN, padding 0": lambda: models.DeepGatedNetwork([3, 4, 1], padding=0),
    "DGN, a gate that is no function": lambda: models.DeepGatedNetwork([3, 4, 1], gate=3),
    "DLGN of width 0": lambda: models.DeepLinearlyGatedNetwork([3, 0, 1]),
    "memorisation of no examples": lambda: models.MemorisationNetwork(0, 4, 2),
    "memorisation, mu 2": lambda: models.MemorisationNetwork(3, 4, 2, mu=2.0),
    "memorisation, depth 0": lambda: models.MemorisationNetwork(3, 4, 0),
    "resnet of depth 7.5": lambda: models.resnet(7.5),
    "resnet of depth 3": lambda: models.resnet(3),
    "gconv without channels": lambda: models.gconv(channels=()),
    "vconv of an image of one axis": lambda: models.vconv(inputs=(3, 32)),
    "half-space gates, offsets of another number": lambda: models.HalfSpaceGates(torch.eye(3), torch.zeros(2)),
    "half-space gates with NaN": lambda: models.HalfSpaceGates(torch.eye(3) * nan),
    "cell gates without centres": lambda: models.CellGates(torch.zeros(0, 3)),
    "open gates, count 0": lambda: models.OpenGates(0),
    "chosen gates out of range": lambda: models.ChosenGates(models.OpenGates(2), [5]),
    "function gates without functions": lambda: models.FunctionGates([]),
    "mean readout of no units": lambda: models.MeanReadoutNetwork(3, 0),
    "gated linear network of dimension 0": lambda: models.GatedDeepLinearNetwork(0, models.OpenGates(2)),
    "pathway, widths of another number": lambda: models.PathwayNetwork(3, 2, [models.OpenGates(2)], [2, 2]),
    "pathway without layers": lambda: models.PathwayNetwork(3, 2, [], []),
}

TABLE = {
    f"{room}: {what}": call
    for room, table in (("dynamics", DYNAMICS), ("hierarchy", HIERARCHY), ("data", DATA), ("models", MODELS))
    for what, call in table.items()
}


@pytest.mark.parametrize("what", TABLE)
def test_refused(what):
    refusal(TABLE[what])
