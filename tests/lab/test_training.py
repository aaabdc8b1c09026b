"""The training loop: teams equal lone training, and what is taken up again equals what was never stopped."""

import copy

import pytest
import torch
from torch import nn

import gatelab as gl
from gatelab.convert import Regime
from gatelab.data import circle, load
from gatelab.errors import InputError, RunError, UnsupportedModelError
from gatelab.lab import TrainConfig, train
from gatelab.lab import team as team_module
from gatelab.lab.checkpoint import Checkpoint
from gatelab.lab.looks import Looks, gate_looks
from gatelab.lab.objectives import Loss
from gatelab.lab.optimisers import Optimiser, can_stack_under
from gatelab.lab.team import SingleTeam, StackedTeam, can_stack, teams
from tests import image_zoo, zoo

DIGITS = load("digits").subset(160, 60)


def mlp(seed, outputs=10):
    generator = torch.Generator().manual_seed(seed)
    return nn.Sequential(nn.Flatten(), *gl.models.mlp([64, 12, 9, outputs], bias=True, generator=generator))


def twins(regime):
    return [gl.to_dgn(mlp(seed), regime, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


@pytest.fixture(params=["small weights", "large weights"])
def weights(request, monkeypatch):
    """Both ways in which a layer of a team is differentiated."""
    if request.param == "large weights":
        monkeypatch.setattr(team_module, "_LARGE_WEIGHT", 0)


@pytest.mark.usefixtures("weights")
@pytest.mark.parametrize("optimiser", [Optimiser.SGD, Optimiser.ADAM, Optimiser.RMSPROP])
@pytest.mark.parametrize("loss", [Loss.CROSS_ENTROPY, Loss.SQUARED])
def test_a_team_learns_what_its_members_learn_alone(optimiser, loss):
    learns_what_its_members_learn(optimiser, loss)


@pytest.mark.parametrize(
    ("optimiser", "loss"),
    [
        (Optimiser.ADAMW, Loss.LOGISTIC),
        (Optimiser.NADAM, Loss.ABSOLUTE),
        (Optimiser.RPROP, Loss.HUBER),
        (Optimiser.ADADELTA, Loss.HINGE),
        (Optimiser.RADAM, Loss.LIKELIHOOD),
        (Optimiser.ASGD, Loss.CROSS_ENTROPY),
        (Optimiser.ADAMAX, Loss.CROSS_ENTROPY),
        (Optimiser.ADAGRAD, Loss.CROSS_ENTROPY),
    ],
)
def test_so_it_does_with_other_optimisers_and_losses(optimiser, loss):
    learns_what_its_members_learn(optimiser, loss)


def test_an_optimiser_that_mixes_weights_is_not_for_teams():
    assert [optimiser for optimiser in Optimiser if not can_stack_under(optimiser)] == [Optimiser.ADAFACTOR]
    with pytest.raises(AssertionError, match="not close"):
        learns_what_its_members_learn(Optimiser.ADAFACTOR, Loss.CROSS_ENTROPY)


def learns_what_its_members_learn(optimiser, loss):
    config = TrainConfig(epochs=2, optimiser=optimiser, learning_rate=0.01, loss=loss, batch_size=25)
    models = [mlp(seed) for seed in range(3)]
    team = StackedTeam(models)
    together = train(team, DIGITS, config, [5, 6, 7])
    for place, model in enumerate(models):
        alone = train(SingleTeam(model), DIGITS, config, [5 + place])
        for name, epochs in together.history.items():
            member = torch.tensor([values[place] for values in epochs])
            torch.testing.assert_close(member, torch.tensor(alone.history[name])[:, 0], rtol=1e-9, atol=1e-9)
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(team.state()[name][place], tensor, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("regime", list(Regime))
def test_gated_twins_train_in_a_team(regime):
    config = TrainConfig(epochs=2, learning_rate=0.01)
    models = twins(regime)
    together = train(StackedTeam(models), DIGITS, config, [1, 2, 3])
    alone = train(SingleTeam(models[1]), DIGITS, config, [2])
    member = torch.tensor([values[1] for values in together.history["train_loss"]])
    torch.testing.assert_close(member, torch.tensor(alone.history["train_loss"])[:, 0], rtol=1e-8, atol=1e-9)


@pytest.mark.usefixtures("weights")
def test_fixed_gates_do_not_move_in_a_team():
    team = StackedTeam(twins(Regime.FRNPF_II))
    before = team.state()
    train(team, DIGITS, TrainConfig(epochs=1, learning_rate=0.1), [1, 2, 3])
    after = team.state()
    assert all(torch.equal(before[name], after[name]) for name in before if name.startswith("feature."))
    assert not torch.equal(before["value.1.weight"], after["value.1.weight"])


def test_what_can_be_stacked():
    assert can_stack(mlp(0))
    assert can_stack(zoo.leaky())
    assert can_stack(gl.models.DeepLinearlyGatedNetwork([4, 5, 3]))
    assert can_stack(twins(Regime.DNPFL)[0])
    assert can_stack(nn.Sequential(nn.Linear(3, 3), nn.SiLU(), nn.Linear(3, 1)))
    assert not can_stack(nn.Sequential(nn.Linear(3, 3), nn.PReLU(), nn.Linear(3, 1)))
    assert not can_stack(nn.Sequential(nn.Linear(3, 6), nn.GLU(), nn.Linear(3, 1)))
    assert not can_stack(image_zoo.made(image_zoo.LeNet))
    assert not can_stack(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1)).eval())
    assert not can_stack(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU(), nn.Linear(3, 1)).eval())
    with pytest.raises(UnsupportedModelError, match="cannot be batched"):
        StackedTeam([image_zoo.made(image_zoo.LeNet)] * 2)
    with pytest.raises(InputError, match="differ in shape"):
        StackedTeam([mlp(0), mlp(1, outputs=4)])
    assert [type(team) for team in teams([mlp(0), mlp(1)])] == [StackedTeam]
    assert [type(team) for team in teams([image_zoo.made(image_zoo.LeNet)] * 2)] == [SingleTeam] * 2


class Reused(nn.Module):
    """Flattens by a function and passes one layer twice."""

    def __init__(self):
        super().__init__()
        self.first, self.again = nn.Linear(12, 5), nn.Linear(5, 5)

    def forward(self, x):
        h = self.first(torch.flatten(x, 1)).relu()
        return self.again(self.again(h).relu())


@pytest.mark.usefixtures("weights")
def test_functions_and_shared_layers_in_a_team():
    models = [Reused() for _ in range(3)]
    team, x = StackedTeam(models), torch.randn(3, 7, 3, 4)
    expected = torch.stack([model(batch) for model, batch in zip(models, x, strict=True)])
    torch.testing.assert_close(team.forward(x), expected)
    team.forward(x).square().sum().backward()
    expected.square().sum().backward()
    for name, parameter in models[1].named_parameters():
        stacked = dict(zip(team.state(), team.parameters(), strict=True))[name]
        torch.testing.assert_close(stacked.grad[1], parameter.grad)
        torch.testing.assert_close(team.member(1).get_parameter(name), parameter)


class StopError(Exception):
    pass


@pytest.mark.parametrize("optimiser", list(Optimiser))
def test_training_taken_up_again_is_the_same_bit_for_bit(optimiser, tmp_path):
    config = TrainConfig(epochs=4, optimiser=optimiser, learning_rate=0.01, momentum=0.5)
    models = [mlp(seed) for seed in range(2)]
    whole_team = StackedTeam(models)
    whole = train(whole_team, DIGITS, config, [1, 2])

    def stop(progress):
        if progress.epoch in (1, 3):
            raise StopError

    path = tmp_path / "checkpoint.safetensors"
    for _ in range(2):
        with pytest.raises(StopError):
            train(StackedTeam(models), DIGITS, config, [1, 2], checkpoint=Checkpoint(path), on_epoch=stop)
    team = StackedTeam(models)
    parts = train(team, DIGITS, config, [1, 2], checkpoint=Checkpoint(path))
    assert parts.history == whole.history
    assert parts.best_score == whole.best_score
    assert all(torch.equal(tensor, whole_team.state()[name]) for name, tensor in team.state().items())
    assert all(torch.equal(tensor, whole.best[name]) for name, tensor in parts.best.items())


def test_batch_norm_and_dropout_train_and_are_taken_up(tmp_path):
    def made():
        torch.manual_seed(0)
        layers = (nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 10))
        return nn.Sequential(nn.Flatten(), *layers)

    config = TrainConfig(epochs=2, learning_rate=0.01)
    model = made()
    torch.manual_seed(5)  # the state of the global generator does not matter
    whole = train(SingleTeam(model), DIGITS, config, [1])
    checkpoint = Checkpoint(tmp_path / "c.safetensors")
    train(SingleTeam(made()), DIGITS, TrainConfig(epochs=1, learning_rate=0.01), [1], checkpoint=checkpoint)
    other = made()
    assert train(SingleTeam(other), DIGITS, config, [1], checkpoint=checkpoint).history == whole.history
    assert torch.equal(other[2].running_mean, model[2].running_mean)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_the_global_generator_is_seeded_only_for_networks_that_draw(dropout, monkeypatch):
    seeds = []
    monkeypatch.setattr(torch, "manual_seed", seeds.append)
    put_back = []
    monkeypatch.setattr(torch, "set_rng_state", put_back.append)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.ReLU(), nn.Dropout(dropout), nn.Linear(4, 10))
    before = torch.get_rng_state()
    train(SingleTeam(model), DIGITS, TrainConfig(epochs=2), seeds=[3])
    assert seeds == ([3_000_009, 3_000_010] if dropout else [])
    assert bool(put_back) == bool(dropout)  # a state that is put back would give other threads the same numbers again
    if not dropout:
        assert torch.equal(torch.get_rng_state(), before)


def test_the_best_weights_are_those_of_the_best_epoch():
    model = mlp(0)
    seen = []
    progress = train(
        SingleTeam(model),
        DIGITS,
        TrainConfig(epochs=4, learning_rate=0.02),
        [1],
        observe=lambda epoch, team: seen.append((epoch, copy.deepcopy(team.state()))),
    )
    accuracies = [epoch[0] for epoch in progress.history["test_accuracy"]]
    best = accuracies.index(max(accuracies)) + 1
    assert [epoch for epoch, _ in seen] == [0, 1, 2, 3, 4]
    assert all(torch.equal(tensor, seen[best][1][name]) for name, tensor in progress.best.items())


def test_training_learns():
    progress = train(SingleTeam(mlp(0)), load("digits"), TrainConfig(epochs=12, learning_rate=3e-3), [1])
    assert progress.best_score[0] > 0.9


def test_seeds_are_one_for_each():
    with pytest.raises(InputError, match="2 seeds for 1 networks"):
        train(SingleTeam(mlp(0)), DIGITS, TrainConfig(epochs=1), [1, 2])


def test_real_targets_have_a_loss_and_no_accuracy():
    data = circle(40)
    team = SingleTeam(gl.models.mlp([2, 16, 1], bias=True, generator=torch.Generator().manual_seed(0)))
    progress = train(team, data, TrainConfig(epochs=3, learning_rate=0.01, loss=Loss.SQUARED, batch_size=10), [0])
    assert set(progress.history) == {"train_loss", "test_loss"}
    errors = (team.member(0)(data.test_x)[:, 0] - data.test_y).detach()
    assert progress.history["test_loss"][-1][0] == pytest.approx(float(0.5 * errors.square().mean()), rel=1e-9)
    assert progress.best_score == [-min(loss for (loss,) in progress.history["test_loss"])]


def test_an_epoch_can_be_a_part_of_the_data():
    seen = []

    class Counting(SingleTeam):
        def forward(self, x):
            seen.append(x.shape[1])
            return super().forward(x)

    config = TrainConfig(epochs=1, batch_size=32, epoch_examples=80)
    train(Counting(mlp(0)), DIGITS, config, [1])
    assert seen[:3] == [32, 32, 16]
    assert seen[3] == len(DIGITS.test_x)


@pytest.mark.parametrize(("limit", "threads"), [(40961, 1), (40960, 2)])
def test_threads_are_chosen_by_the_size_of_a_step(limit, threads, monkeypatch):
    """A step has 2 members · 32 examples · 64 · 10 = 40960 multiplications."""
    monkeypatch.setattr("gatelab.work.here._SEVERAL_THREADS_PAY", limit)
    seen = set()

    class Watched(StackedTeam):
        def forward(self, x):
            seen.add(torch.get_num_threads())
            return super().forward(x)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        team = Watched([nn.Sequential(nn.Flatten(), nn.Linear(64, 10)) for _ in range(2)])
        train(team, DIGITS, TrainConfig(epochs=1, batch_size=32), [0, 1])
    finally:
        torch.set_num_threads(before)
    assert seen == {threads}


def test_gates_are_tracked_across_a_stop(tmp_path):
    """The second half of a training compares its first look with the last one of the first half."""
    probes, labels = DIGITS.inputs(DIGITS.test_x[:20]), torch.ones(20)

    def tracked(folder, stops):
        folder.mkdir()
        team, checkpoint = SingleTeam(mlp(0)), Checkpoint(folder / "c.safetensors")
        for epochs in stops:
            looks = gate_looks(folder, probes, labels, epochs=4, every=2, tangent=False)
            team, config = SingleTeam(mlp(0)), TrainConfig(epochs=epochs, learning_rate=0.02)
            train(team, DIGITS, config, [1], checkpoint=checkpoint, observe=lambda e, t, looks=looks: looks.at(e, t, 0))
        return looks.seen()

    whole = tracked(tmp_path / "whole", [4])
    assert whole == tracked(tmp_path / "stopped", [2, 4])
    assert [entry["epoch"] for entry in whole] == [0, 2, 4]
    assert whole[0]["members"][0]["flipped"] is None
    assert whole[2]["members"][0]["flipped"] > 0


def test_a_look_that_is_missing_is_named(tmp_path):
    with pytest.raises(RunError, match=r"seen-3-0.json is missing; remove .* to repeat this cell"):
        Looks(tmp_path, [3], lambda *_: {}, networks=1).seen()


def dlgn(seed, beta=10.0):
    net = gl.models.DeepLinearlyGatedNetwork(
        [64, 8, 8, 10], gate=gl.gates.SoftGate(beta), generator=torch.Generator().manual_seed(seed)
    )
    return nn.Sequential(nn.Flatten(), net)


def test_gates_grow_steeper_in_a_team_as_they_do_alone(tmp_path):
    config = TrainConfig(epochs=3, final_beta=1000.0, learning_rate=1e-2)
    (together,) = teams([dlgn(seed) for seed in range(2)])
    train(together, DIGITS, config, [0, 1])
    for place in range(2):
        seen = []
        (alone,) = teams([dlgn(place)])
        train(
            alone, DIGITS, config, [place], observe=lambda _, team, seen=seen: seen.append(team.member(0)[1].gate.beta)
        )
        assert seen == pytest.approx([10.0, 10.0, 100.0, 1000.0])
        assert together.member(place)[1].gate.beta == pytest.approx(1000.0)
        torch.testing.assert_close(together.member(place).state_dict(), alone.member(0).state_dict())
    assert dlgn(0)[1].gate.beta == 10.0


@pytest.mark.parametrize("slow", [True, False])
def test_slow_gates_take_steps_that_shrink_with_steepness(slow):
    """Adam's steps are about as long as the learning rate, whatever the gradient."""
    states = []
    (team,) = teams([dlgn(0)])
    config = TrainConfig(epochs=2, final_beta=1000.0, slow_gates=slow, learning_rate=1e-2)
    train(team, DIGITS, config, [0], observe=lambda _, seen: states.append(seen.state()))
    moved = {name: (states[2][name] - states[1][name]).abs().max() for name in states[1]}
    features = max(float(moved[name]) for name in moved if "feature" in name)
    values = max(float(moved[name]) for name in moved if "value" in name)
    assert values > 1e-2
    assert (features < 1e-2 / 10) == slow  # β is 100 times as steep: 5 steps of 1e-4 or a little more


def test_slow_gates_need_gates_that_steepen():
    with pytest.raises(ValueError, match="set final_beta"):
        TrainConfig(epochs=1, slow_gates=True)
    silu = nn.Sequential(nn.Flatten(), SoftlyGated())
    (team,) = teams([silu])
    with pytest.raises(InputError, match="no parameters decide only gates"):
        train(team, DIGITS, TrainConfig(epochs=1, final_beta=100.0, slow_gates=True), [0])


class SoftlyGated(nn.Module):
    """One layer that gates itself."""

    def __init__(self):
        super().__init__()
        self.layer, self.gate = nn.Linear(64, 10), gl.gates.SoftGate()

    def forward(self, x):
        q = self.layer(x)
        return gl.gates.gated(q, q, self.gate)


@pytest.mark.parametrize("slow", [True, False])
def test_steeper_gates_are_taken_up_after_a_stop(tmp_path, slow):
    config = TrainConfig(epochs=4, final_beta=1000.0, slow_gates=slow, learning_rate=1e-2)
    (whole,) = teams([dlgn(0)])
    train(whole, DIGITS, config, [0])
    checkpoint = Checkpoint(tmp_path / "state.safetensors")
    (first,) = teams([dlgn(0)])

    def stop(state):
        if state.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(first, DIGITS, config, [0], checkpoint=checkpoint, on_epoch=stop)
    (second,) = teams([dlgn(0)])
    train(second, DIGITS, config, [0], checkpoint=checkpoint)
    torch.testing.assert_close(second.state(), whole.state(), rtol=0, atol=0)
    assert second.member(0)[1].gate.beta == pytest.approx(1000.0)


def test_there_must_be_soft_gates_to_steepen():
    (team,) = teams([mlp(0)])
    with pytest.raises(InputError, match="no soft gates"):
        train(team, DIGITS, TrainConfig(epochs=1, final_beta=100.0), [0])
