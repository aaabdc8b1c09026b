"""Losses and metrics against plain definitions."""

from math import exp, log

import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, r2_score
from torch import nn

from gatelab.data.user_data import UserData
from gatelab.errors import InputError
from gatelab.lab.objectives import Loss, Metric, Score, losses
from gatelab.lab.optimisers import Optimiser, Schedule, make_optimiser
from gatelab.lab.team import SingleTeam, StackedTeam
from gatelab.lab.training import TrainConfig, train

ANSWERS = torch.tensor([[[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]]], dtype=torch.float64)
LABELS = torch.tensor([[2, 1]])


def by_hand(loss, answers, label):
    """The loss of one example with three classes, written out."""
    wanted = [float(label == place) for place in range(3)]
    gaps = [a - w for a, w in zip(answers, wanted, strict=True)]
    return {
        Loss.CROSS_ENTROPY: log(sum(exp(a) for a in answers)) - answers[label],
        Loss.SQUARED: sum(g * g for g in gaps) / 2,
        Loss.LOGISTIC: sum(log(1 + exp(-(2 * w - 1) * a)) for a, w in zip(answers, wanted, strict=True)),
        Loss.ABSOLUTE: sum(abs(g) for g in gaps),
        Loss.HUBER: sum(g * g / 2 if abs(g) <= 1 else abs(g) - 0.5 for g in gaps),
        Loss.HINGE: sum(max(0.0, 1 - answers[label] + a) for place, a in enumerate(answers) if place != label) / 3,
        Loss.LIKELIHOOD: -answers[label],
    }[loss]


@pytest.mark.parametrize("loss", list(Loss))
def test_losses_are_what_they_say(loss):
    expected = sum(by_hand(loss, a, y) for a, y in zip(ANSWERS[0].tolist(), LABELS[0].tolist(), strict=True)) / 2
    assert float(losses(ANSWERS, LABELS, loss)) == pytest.approx(expected, rel=1e-12)


def test_one_output_has_signs_for_classes():
    answers, labels = torch.tensor([[[0.3], [-2.0]]]), torch.tensor([[1, 0]])
    expected = (log(1 + exp(-0.3)) + log(1 + exp(-2.0))) / 2
    for loss in (Loss.LOGISTIC, Loss.CROSS_ENTROPY):
        assert float(losses(answers, labels, loss)) == pytest.approx(expected, rel=1e-12)
    assert float(losses(answers, labels, Loss.HINGE)) == pytest.approx(0.7 / 2, rel=1e-12)


def test_metrics_are_scikit_learns(generator):
    answers, labels = torch.randn(2, 40, 3, generator=generator), torch.randint(3, (40,), generator=generator)
    labels[:25] = 0  # classes are uneven
    for metric, reference in ((Metric.BALANCED, balanced_accuracy_score), (Metric.R2, r2_score)):
        wanted = labels if metric is Metric.BALANCED else torch.randn(40, 3, generator=generator) + answers[0]
        score = Score(metric, 2)
        for rows in torch.arange(40).split(13):  # batch by batch
            score.add(answers[:, rows], wanted[rows])
        given = answers.argmax(dim=2) if metric is Metric.BALANCED else answers
        expected = [reference(wanted.numpy(), given[member].numpy()) for member in range(2)]
        assert score.value().tolist() == pytest.approx(expected, rel=1e-10)


def test_schedules():
    shares = (0.0, 0.25, 0.5, 0.75)
    assert [Schedule.COSINE.factor(share) for share in shares] == pytest.approx([1, 0.8535534, 0.5, 0.1464466])
    assert [Schedule.STEPS.factor(share) for share in shares] == [1.0, 1.0, 0.1, 0.01]
    assert [Schedule.CONSTANT.factor(share, warm_up=0.5) for share in shares] == [0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize("optimiser", list(Optimiser))
def test_every_optimiser_moves_weights(optimiser):
    layer = nn.Linear(3, 2)
    before = layer.weight.detach().clone()
    made = make_optimiser(list(layer.parameters()), optimiser, 0.1)
    for _ in range(2):
        made.zero_grad()
        layer(torch.ones(1, 3)).square().sum().backward()
        made.step()
    assert not torch.equal(before, layer.weight)


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(InputError, match=r"optimiser adam does not take {'nesterow': 1}.*nesterow"):
        make_optimiser([nn.Parameter(torch.ones(2))], Optimiser.ADAM, 0.1, options={"nesterow": 1})


def regression(n=60, columns=2):
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1))
    y = x @ torch.randn(4, columns, generator=torch.Generator().manual_seed(2))
    return UserData("lines", x, y, x, y)


def test_several_real_targets_are_learnt_and_the_metric_chooses_the_best_epoch():
    net = nn.Linear(4, 2)
    config = TrainConfig(epochs=40, learning_rate=0.05, loss=Loss.SQUARED, metric=Metric.R2, schedule="cosine")
    state = train(SingleTeam(net), regression(), config, [0])
    assert state.history["test_score"][-1][0] > 0.99
    assert "test_accuracy" not in state.history
    assert state.best_score == [max(epoch[0] for epoch in state.history["test_score"])]


def test_the_schedule_scales_each_step():
    data, start = regression(), nn.Linear(4, 2)
    net = nn.Linear(4, 2)
    net.load_state_dict(start.state_dict())
    config = TrainConfig(epochs=2, batch_size=60, learning_rate=0.1, loss="squared", schedule="linear", optimiser="sgd")
    train(SingleTeam(net), data, config, [0])
    weight, bias = start.weight.detach().clone(), start.bias.detach().clone()
    for rate in (0.1, 0.05):  # two full batches
        error = data.train_x @ weight.T + bias - data.train_y
        weight, bias = weight - rate * error.T @ data.train_x / 60, bias - rate * error.mean(dim=0)
    torch.testing.assert_close(net.weight.detach(), weight, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(net.bias.detach(), bias, rtol=1e-10, atol=1e-12)


def test_augmentation_sees_training_batches_alone_and_keeps_their_shape():
    seen = []

    def double(x):
        seen.append(tuple(x.shape))
        return 2 * x

    data, config = regression(), TrainConfig(epochs=1, batch_size=30, loss=Loss.SQUARED)
    nets = [nn.Sequential(nn.Linear(4, 2)) for _ in range(2)]
    train(StackedTeam(nets), data, config, [0, 1], augment=double)
    assert seen == [(60, 4), (60, 4)]  # two members with 30 examples each, two batches
    with pytest.raises(InputError, match=r"augment returned \(30, 3\) for a batch of shape \(30, 4\)"):
        train(SingleTeam(nn.Linear(4, 2)), data, config, [0], augment=lambda x: x[:, :3])
