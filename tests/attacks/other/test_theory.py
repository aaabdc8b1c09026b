"""Flows, moments, hierarchies, data and models with wrong shapes, types and numbers: refused."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from gatelab import data, dynamics, hierarchy, models
from tests.attacks.fuzz.checks import equal
from tests.attacks.outcomes import SilentlyWrongError, refusal

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


def contexts():
    return dynamics.context_moments(pathway(), x, torch.ones(6, 2, dtype=torch.float64))


def runners():
    return models.PathwayNetwork(2, 1, [models.OpenGates(1)], [2])


def race(tau=1.0):
    whitened = dynamics.context_moments(runners(), torch.eye(2), torch.tensor([[1.0], [0.0]]))
    return dynamics.NeuralRace(whitened, tau)


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
    "flow, K 1.5 that divides": lambda: dynamics.GatedLinearFlow(A, b, 1.5),
    "flow, weights at infinity": lambda: dynamics.GatedLinearFlow(A, b, 2).weights(inf),
    "flow, A of integers": lambda: dynamics.GatedLinearFlow(torch.eye(6).long(), torch.ones(6).long(), 2),
    "flow, shape of other sites": lambda: dynamics.GatedLinearFlow(A, b, 2, shape=(5,)),
    "moments of a unit that does not exist": lambda: moments.input_output(7),
    "moments of a block that does not exist": lambda: moments.input_input(0, -3),
    "moments, loss of weights of another shape": lambda: moments.loss(torch.zeros(3, 2, dtype=torch.float64)),
    "moments, x as a list": lambda: dynamics.moments_of([[1.0]], y, open_gates),
    "estimated moments, batch 0": lambda: dynamics.estimate_moments(ring, models.OpenGates(2), 4, batch=0),
    "estimated moments of a tensor": lambda: dynamics.estimate_moments(x, models.OpenGates(2), 4),
    "estimated moments, cells of another size": lambda: dynamics.estimate_moments(
        ring, models.CellGates(torch.eye(5)), 4
    ),
    "minimum loss of NaN": lambda: dynamics.minimum_loss(dynamics.GatedMoments(A * nan, b, 2, 1.0)),
    "self-gated flow, most 1.5": lambda: dynamics.self_gated_flow(x, y, torch.randn(2, 3), 1.0, most=1.5),
    "self-gated flow, initial of NaN": lambda: dynamics.self_gated_flow(x, y, torch.full((2, 3), nan), 1.0),
    "piecewise flow, a switch in the past": lambda: dynamics.PiecewiseFlow([0.0, 2.0], [moments] * 2).switch(
        1.0, moments
    ),
    "piecewise flow, moments of other units": lambda: dynamics.PiecewiseFlow(
        [0.0, 1.0], [moments, dynamics.moments_of(x, y, open_gates[:, :1])]
    ),
    "Gabor fit of infinity": lambda: dynamics.fit_gabor(torch.tensor([1.0, inf, 0.0, 0.0])),
    "participation ratio of infinity": lambda: dynamics.inverse_participation_ratio(torch.tensor([1.0, inf])),
    "locations of NaN": lambda: dynamics.match_location(torch.full((2, 8), nan), torch.randn(2, 8)),
    "locations of zeros": lambda: dynamics.match_location(torch.zeros(2, 8), torch.randn(2, 8)),
    "locations of one field": lambda: dynamics.match_location(torch.randn(8), torch.randn(8)),
    "flip rate of no examples": lambda: dynamics.sign_flip_rate(torch.ones(2, 3, 0, dtype=torch.bool)),
    "flip rate of one unit's records": lambda: dynamics.sign_flip_rate(torch.ones(4, 3, dtype=torch.bool)),
    "pathway flow, tau NaN": lambda: dynamics.PathwayFlow(contexts(), pathway(), tau=nan),
    "pathway flow, times with NaN": lambda: dynamics.PathwayFlow(contexts(), pathway()).solve(torch.tensor([0.0, nan])),
    "pathway flow to infinity": lambda: dynamics.PathwayFlow(contexts(), pathway()).solve(torch.tensor([0.0, inf])),
    "pathway flow of another network": lambda: dynamics.PathwayFlow(contexts(), pathway(4)),
    "a pathway through a node that does not exist": lambda: contexts().input_output([9]),
    "a pathway through a negative node": lambda: contexts().input_output([-1]),
    "race, tau 0": lambda: race(tau=0.0),
    "race, tau NaN": lambda: race(tau=nan),
    "race, start NaN": lambda: race().strengths(1.0, nan),
    "race at a negative time": lambda: race().strengths(-1.0, 0.1),
    "race, loss at NaN": lambda: race().loss(nan, 0.1),
    "race, aligned from below zero": lambda: race().align(runners(), -0.1),
    "race, aligned with a deeper network": lambda: race().align(
        models.PathwayNetwork(2, 1, [models.OpenGates(1)] * 2, [2, 2]), 0.1
    ),
    "tracker of a tensor": lambda: dynamics.GateTracker(x, x).record(0),
    "gates of a tracker before its first record": lambda: dynamics.GateTracker(models.mlp([3, 4, 1]), x).gates,
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
    "string of 4.0 positions": lambda: hierarchy.string_fields(4.0, [2]),
    "string, a number for kernels": lambda: hierarchy.string_fields(4, 2),
    "image, windows of three axes": lambda: hierarchy.image_fields(4, 4, [(2, 2, 2)]),
    "image of 4.5 rows": lambda: hierarchy.image_fields(4.5, 4, [2]),
    "fields, half a position": lambda: hierarchy.ReceptiveFields({"a": [0], "b": [0.5], "all": [0, 0.5]}),
    "fields of a tensor": lambda: hierarchy.fields_of(x, (4,)),
    "student, nodes of an unknown region": lambda: hierarchy.LocalNetwork(fields, {"h1_0": 2, "h1_1": 2, "h1_7": 2}, 2),
    "student, encoding of an unknown leaf": lambda: hierarchy.LocalNetwork(
        fields, 2, 2, encodings={"x9": torch.eye(2)}
    ),
    "student, values 1.5": lambda: hierarchy.LocalNetwork(fields, 2, 2, values=1.5),
    "student, a norm by its text": lambda: hierarchy.NodeOptions(norm="after the ReLU"),
    "student, negative eps": lambda: hierarchy.NodeOptions(norm=hierarchy.Norm.AFTER_RELU, eps=-1.0),
    "student, weights of other inputs": lambda: hierarchy.LocalNetwork(
        fields, 2, 2, hidden=hierarchy.NodeOptions(norm=hierarchy.Norm.AFTER_LINEAR, eps=1.0)
    )(torch.zeros(3, 4, dtype=torch.int64), torch.ones(5) / 5),
    "student, weights that do not sum to one": lambda: hierarchy.LocalNetwork(
        fields, 2, 2, hidden=hierarchy.NodeOptions(norm=hierarchy.Norm.AFTER_LINEAR, eps=1.0)
    )(torch.zeros(3, 4, dtype=torch.int64), torch.ones(3)),
    "teacher, negative labels": lambda: hierarchy.Teacher(fields, hierarchy.rules.parity, labels=torch.tensor([0, -1])),
    "teacher, labels as numbers": lambda: hierarchy.Teacher(
        fields, hierarchy.rules.parity, labels=torch.tensor([0.0, 1.0])
    ),
    "teacher, targets as a vector": lambda: hierarchy.Teacher(fields, hierarchy.rules.parity, targets=torch.ones(2)),
    "teacher, targets with NaN": lambda: hierarchy.Teacher(
        fields, hierarchy.rules.parity, targets=torch.full((2, 2), nan)
    ),
    "teacher, a rule that is no function": lambda: hierarchy.Teacher(fields, 3),
    "teacher, contents of numbers": lambda: teacher().contents("h1_0", torch.full((2, 4), 7)),
    "random table of no values": lambda: hierarchy.Teacher(fields, hierarchy.rules.random_table(0)),
    "convolution of no bits": lambda: hierarchy.Teacher(fields, hierarchy.rules.quantised_convolution(0)),
    "inputs, 2.5 positions": lambda: hierarchy.inputs.Uniform(2.5),
    "inputs, probabilities as a vector": lambda: hierarchy.inputs.Independent(torch.tensor([0.5, 0.5])),
    "inputs, probability of a negative value": lambda: hierarchy.inputs.Uniform(3).probability(
        torch.tensor([[0, 1, -1]])
    ),
    "inputs, a chain of no positions": lambda: hierarchy.inputs.MarkovChain(0, torch.ones(2) / 2, torch.eye(2)),
    "inputs, a sample of -1": lambda: hierarchy.inputs.Uniform(3).sample(-1),
    "inputs, data of numbers": lambda: hierarchy.inputs.Empirical(torch.rand(5, 3)),
    "inputs, data as a vector": lambda: hierarchy.inputs.Empirical(torch.ones(5, dtype=torch.int64)),
    "inputs, 2.5 levels": lambda: hierarchy.inputs.discretise(torch.rand(4, 3), 2.5),
    "inputs of nothing, discretised": lambda: hierarchy.inputs.discretise(torch.rand(0, 3)),
    "counted events of nothing": lambda: hierarchy.counted_events(teacher(), torch.zeros(0, 4, dtype=torch.int64)),
    "given events, targets of other values": lambda: hierarchy.given_events(
        hierarchy.string_fields(2, []),
        logits,
        {("top", leaf): torch.eye(2, dtype=torch.float64) for leaf in ("x0", "x1")},
        torch.eye(5),
    ),
    "refined, keep 1.5": lambda: hierarchy.refined(teacher(), 1.5),
    "gradient trainer, infinite rate": lambda: hierarchy.GradientTrainer(
        hierarchy.student_for(teacher(), 2), teacher(), inf
    ),
    "gradient trainer, a batch out of range": lambda: hierarchy.GradientTrainer(
        hierarchy.student_for(teacher(), 2), teacher(), 0.1
    ).step(torch.tensor([99])),
    "gradient trainer, an empty batch": lambda: hierarchy.GradientTrainer(
        hierarchy.student_for(teacher(), 2), teacher(), 0.1
    ).step(torch.tensor([], dtype=torch.int64)),
    "scores of a student with fewer values": lambda: hierarchy.selectivity(
        hierarchy.LocalNetwork(fields, 2, 2),
        hierarchy.Teacher(fields, hierarchy.rules.parity, hierarchy.inputs.Uniform(4, 3)),
    ),
    "expressibility of other values": lambda: hierarchy.expressibility(hierarchy.exact_events(teacher()), values=3),
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
    "circle of frequency 1.5": lambda: data.circle(10, low=1.5),
    "process on a ring given as a number": lambda: data.NLGP((1.0, 2.0), 1.0, 8),
    "process of text": lambda: data.NLGP("ab", 1.0),
    "sample of 4.0": lambda: ring.sample(4.0),
    "class 2": lambda: pulses.of_class(2, 4),
    "examples of a class, -1": lambda: pulses.of_class(1, -1),
    "pulses of fractional widths": lambda: data.SinglePulse(((1.5, 2.5), (1, 2)), (8,)),
    "pulses of three classes": lambda: data.SinglePulse(((1, 2), (1, 2), (3, 4)), (8,)),
    "pulses of one width each": lambda: data.SinglePulse((3, 4), (8,)),
    "clone of a class that does not exist": lambda: data.GaussianClone(ring).of_class(3, 4),
    "mean of a class that does not exist": lambda: pulses.mean(5),
    "clusters 2.5": lambda: data.modified_fashion(data.load("digits"), clusters=2.5),
    "clusters of five classes": lambda: data.modified_fashion(replace(data.load("digits"), classes=tuple("01234"))),
    "clusters of a tensor": lambda: data.modified_fashion(x),
    "shrunk by 2.0": lambda: data.load("digits").shrunk(2.0),
    "images and labels of different numbers": lambda: replace(data.load("digits"), train_y=torch.zeros(3)),
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
    "DGN of a number": lambda: models.DeepGatedNetwork(3),
    "DGN, padding 1.5": lambda: models.DeepGatedNetwork([3, 4, 1], padding=1.5),
    "DLGN, a gate that is no function": lambda: models.DeepLinearlyGatedNetwork([3, 4, 1], gate=3),
    "memorisation of 2.5 examples": lambda: models.MemorisationNetwork(2.5, 4, 2),
    "memorisation, mu NaN": lambda: models.MemorisationNetwork(3, 4, 2, mu=nan),
    "resnet of depth 20.0": lambda: models.resnet(20.0),
    "resnet without outputs": lambda: models.resnet(20, outputs=0),
    "gconv of 1.5 channels": lambda: models.gconv(channels=(1.5,)),
    "gconv of images without channels": lambda: models.gconv(inputs=0),
    "vconv of images without height": lambda: models.vconv(inputs=(3, 0, 32)),
    "half-space CNN of 1.5 layers": lambda: models.halfspace_cnn(layers=1.5),
    "half-space gates of one normal without axis": lambda: models.HalfSpaceGates(torch.ones(3)),
    "half-space gates of a list": lambda: models.HalfSpaceGates([[1.0, 0.0]]),
    "half-space gates of integers with an offset vector of two axes": lambda: models.HalfSpaceGates(
        torch.eye(2), torch.zeros(2, 1)
    ),
    "cell gates with NaN": lambda: models.CellGates(torch.full((2, 3), nan)),
    "open gates, count 1.5": lambda: models.OpenGates(1.5),
    "chosen gates, half a place": lambda: models.ChosenGates(models.OpenGates(2), [0.5]),
    "chosen gates of a tensor": lambda: models.ChosenGates(x, [0]),
    "function gates of numbers": lambda: models.FunctionGates([1.0, 2.0]),
    "function gates, a number for all examples": lambda: models.FunctionGates([lambda x: x.sum()]).opened(x),
    "mean readout of 2.5 inputs": lambda: models.MeanReadoutNetwork(2.5, 3),
    "mean readout, scale NaN": lambda: models.MeanReadoutNetwork(3, 3, scale=nan),
    "mean readout, bias infinite": lambda: models.MeanReadoutNetwork(3, 3, bias=inf),
    "mean readout, an activation that is no module": lambda: models.MeanReadoutNetwork(3, 3, torch.relu),
    "gated linear network, gates of another dimension": lambda: models.GatedDeepLinearNetwork(
        3, models.HalfSpaceGates(torch.eye(2))
    ),
    "gated linear network, gates as booleans": lambda: models.GatedDeepLinearNetwork(3, open_gates),
    "pathway, gates of another dimension": lambda: models.PathwayNetwork(
        3, 2, [models.ChosenGates(models.HalfSpaceGates(torch.eye(2)), [0])], [2]
    ),
    "pathway, a node of 1.5 units": lambda: models.PathwayNetwork(3, 2, [models.OpenGates(2)], [1.5]),
}

TABLE = {
    f"{room}: {what}": call
    for room, table in (("dynamics", DYNAMICS), ("hierarchy", HIERARCHY), ("data", DATA), ("models", MODELS))
    for what, call in table.items()
}


@pytest.mark.parametrize("what", TABLE)
def test_refused(what):
    refusal(TABLE[what])


@pytest.mark.parametrize("size", [2.0**-100, 2.0**-40, 1.0, 2.0**40, 2.0**100])
def test_participation_ratio_does_not_depend_on_the_size(size):
    """Fourth powers of small or large float32 weights leave the range of float32."""
    field = torch.tensor([1.0, 2.0, 0.0, -1.0], dtype=torch.float32)
    ratio = dynamics.inverse_participation_ratio(field * size)
    equal(ratio, torch.tensor(0.5, dtype=torch.float32), "the participation ratio")


def test_a_subset_of_no_examples_is_empty():
    part = data.load("digits").subset(0, 0)
    if len(part.train_x) or len(part.test_y):
        raise SilentlyWrongError(f"a subset of 0 examples has {len(part.train_x)} and {len(part.test_y)}")


def test_flow_at_a_late_time_is_its_limit():
    """A is singular here: two units have the same gates."""
    flow = dynamics.GatedLinearFlow(A, b, 2, initial=torch.ones(2, 3, dtype=torch.float64))
    equal(flow.weights(1e9), flow.limit(), "w(t)")


def test_moments_of_chosen_units_are_those_of_their_gates():
    gates = torch.randn(6, 3, dtype=torch.float64) > 0
    some, chosen = dynamics.moments_of(x, y, gates[:, [2, 0]]), dynamics.moments_of(x, y, gates).choose([2, 0])
    equal(chosen.A, some.A, "A")
    equal(chosen.b, some.b, "b")


def test_clone_has_the_moments_of_its_source():
    clone = data.GaussianClone(pulses)
    drawn = clone.of_class(1, 200_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gap = float((drawn.T @ drawn / len(drawn) - pulses.second_moment(1)).abs().max())
    if gap > 0.02:  # six standard errors of 1/√200000 for entries of variance of order one
        raise SilentlyWrongError(f"second moments differ by {gap}")


def test_a_student_reads_narrow_integers():
    """Inputs as bytes give the answers of 64-bit ones: codes of leaves must not overflow."""
    wide = hierarchy.string_fields(18, [], leaf=9)
    student = hierarchy.LocalNetwork(wide, 2, 2)
    strings = torch.randint(2, (5, 18), generator=torch.Generator().manual_seed(0))
    equal(student(strings.to(torch.uint8)).detach(), student(strings).detach(), "the output")


def test_exact_moments_are_those_of_the_support():
    gates = models.HalfSpaceGates(torch.randn(3, 8, dtype=torch.float64))
    support = [pulses.support(label) for label in (0, 1)]
    one, zero = (dynamics.moments_of(part, torch.ones(len(part), dtype=torch.float64), gates) for part in support)
    equal(dynamics.exact_moments(pulses, gates).A, (one.A + zero.A) / 2, "A")


def test_loss_of_a_flow_is_that_of_its_weights():
    flow = dynamics.GatedLinearFlow.from_moments(moments, initial=torch.randn(2, 3, dtype=torch.float64))
    times = torch.tensor([0.0, 0.3, 7.0], dtype=torch.float64)
    equal(flow.loss(times), moments.loss(flow.weights(times)), "the loss")
