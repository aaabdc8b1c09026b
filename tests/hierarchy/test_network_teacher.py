"""Teachers read off a network, and what a diagnosis says about it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from gatelab.data import load
from gatelab.errors import InputError, UnsupportedModelError
from gatelab.hierarchy import TopLoss, conditions, diagnose, observe_student, selectivity, teacher_from
from gatelab.hierarchy.cells import Gap, jackknife
from gatelab.hierarchy.diagnosing import _Work
from gatelab.hierarchy.diagnosis import _degree
from gatelab.hierarchy.network_teacher import _variance_kept
from gatelab.hierarchy.quantise import Clusters, ProductCodes, SignPattern
from gatelab.hierarchy.reading import Winners, by_position, regions_of


def net(seed=0):
    torch.manual_seed(seed)
    layers = (nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(16, 10)).eval()


@pytest.fixture(scope="module")
def digits():
    data = load("digits")
    return data.inputs(data.train_x[:240], torch.float64), data.train_y[:240]


@pytest.fixture
def model():
    return net().double()


@pytest.fixture
def teacher(model, digits, generator):
    return teacher_from(model, digits, quantiser=Clusters(6), generator=generator)


def test_variables_are_clusters_of_the_nodes_and_labels_are_the_top(teacher, model, digits):
    x, y = digits
    assert teacher.fields.n_positions == 64
    assert [len(layer.regions) for layer in teacher.regions.layers] == [64, 4]
    assert torch.equal(teacher.z["top"], y)
    nodes = by_position(model[:2](x))[:, 20]
    distances = torch.cdist(nodes, teacher.codebooks[1].centres)
    assert torch.equal(teacher.z["h1_20"], distances.argmin(dim=1))
    assert all(torch.equal(a, b) for a, b in zip(teacher.encode(x[:9]), (c[:9] for c in teacher.codes), strict=True))


def test_probabilities_are_counted_with_their_errors(teacher):
    events, z = teacher.events, teacher.z
    both = (z["h2_1"] == 2) & (z["h1_20"] == 1)
    n = int((z["h2_1"] == 2).sum())
    share = int(both.sum()) / n
    assert events.matrix("h2_1", "h1_20").to_dense()[2, 1].item() == pytest.approx(share)
    assert events.error("h2_1", "h1_20")[2, 1].item() == pytest.approx((share * (1 - share) / n) ** 0.5)
    assert events.samples == 240


def test_information_is_entropy_in_bits(teacher):
    layer = teacher.information[2]
    entropies = []
    for column in teacher.codes[2].T:
        counts = np.bincount(column.numpy())
        counts = counts[counts > 0]
        plain = -(counts / 240 * np.log2(counts / 240)).sum()
        entropies.append(plain + (len(counts) - 1) / (480 * np.log(2)))
    assert layer.bits == pytest.approx(np.mean(entropies))
    assert 0 < layer.variance < 1
    assert 0 <= layer.label_bits < layer.bits


def test_more_values_keep_more(model, digits, generator):
    few, many = (teacher_from(model, digits, quantiser=Clusters(m), generator=generator) for m in (2, 24))
    for a, b in zip(few.information[1:], many.information[1:], strict=True):
        assert b.bits > a.bits
        assert b.variance > a.variance


def test_codes_of_products_and_of_signs(model, digits):
    x, _ = digits
    product = teacher_from(model, digits, quantiser=ProductCodes(2, 3))
    assert product.sizes["h2_0"] == 9
    signs = teacher_from(model, digits, quantiser=SignPattern(2))
    columns = signs.codebooks[2].columns
    f = by_position(model[:6](x))[:, 1][:, list(columns)]
    assert torch.equal(signs.z["h2_1"], 2 * (f[:, 0] > 0).long() + (f[:, 1] > 0).long())


def test_sparse_matrices_equal_dense_ones(model, digits):
    teacher = teacher_from(model, digits, quantiser=ProductCodes(2, 5))
    matrix = teacher.events.matrix("h2_0", "h1_0")
    assert matrix.is_sparse
    assert torch.allclose(matrix.to_dense().sum(dim=1), (teacher.events.priors["h2_0"] > 0).double())


def test_the_data_decide_not_their_order(model, digits, generator):
    """A subset has the codes of its examples."""
    teacher = teacher_from(model, digits, generator=generator)
    rows = torch.tensor([5, 2, 9])
    part = teacher.subset(rows)
    assert torch.equal(part.z["h1_3"], teacher.z["h1_3"][rows])
    assert torch.equal(part.y, digits[1][rows])


def test_existing_measures_take_a_network_and_its_teacher(digits, generator):
    model = nn.Sequential(nn.Conv2d(1, 3, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(12, 10)).double()
    teacher = teacher_from(model, digits, quantiser=Clusters(4), generator=generator).subset(torch.arange(40))
    seen = observe_student(model, teacher)
    with torch.no_grad():
        output = model(teacher.x)
    torch.testing.assert_close(seen.states["top"].output, output)
    torch.testing.assert_close(seen.gradients["top"], teacher.targets[teacher.y] - torch.softmax(output, dim=1))
    assert 0 < selectivity(model, teacher).overall < 1
    assert set(conditions(model, teacher).nodes) == set(teacher.fields.inner)


def test_what_diagnose_averages_is_theorem_4(digits, generator):
    """Σ w f_k(z_β), averaged over the examples with one z_α, is Σ P F W: the network run on means against matrices."""
    torch.manual_seed(3)
    layers = (nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * 36, 10)).double().eval()
    teacher = teacher_from(model, digits, quantiser=Clusters(5), generator=generator)
    seen, events = observe_student(model, teacher), teacher.events
    scale = model[3].weight / (model[3].running_var + model[3].eps).sqrt()
    raw = model[2].bias.expand(5, -1).clone()
    back = torch.zeros(5, 3)
    for place in range(9):
        row, column = divmod(place, 3)
        f = events.matrix("h2_0", f"h1_{row * 8 + column}").to_dense() @ seen.activation(f"h1_{row * 8 + column}")
        raw += f @ model[2].weight[:, :, row, column].T
        # h1_9, at row 1 and column 1, is read by h2_0, h2_1, h2_6 and h2_7, through the taps that are left over.
        if row < 2 and column < 2:
            parent = f"h2_{row * 6 + column}"
            g = events.backward(parent, "h1_9").to_dense().T @ seen.gradient(parent)
            back += (g * scale) @ model[2].weight[:, :, 1 - row, 1 - column]
    raw = (raw - model[3].running_mean) * scale + model[3].bias
    work = _Work(teacher.regions, teacher, TopLoss.CROSS_ENTROPY, 64, 100, 2)
    work.first_pass()
    work.second_pass()
    above, below = work.layers[1].sums.means(), work.layers[0].sums.means()
    occurring, below_too = events.priors["h2_0"] > 0, events.priors["h1_9"] > 0
    torch.testing.assert_close(above["through"][0][occurring], raw[occurring])
    torch.testing.assert_close(above["gate"][0], seen.gate("h2_0"))
    torch.testing.assert_close(below["back"][9][below_too], back[below_too])
    torch.testing.assert_close(below["g"][9], seen.gradient("h1_9"))


def test_a_code_that_keeps_everything_leaves_no_gap(digits, generator):
    """If z_α determines the nodes and the gradient, Eq. 7 is exact; with few values it is not."""
    x, y = digits
    x, y = x[:20].repeat(4, 1, 1, 1), y[:20].repeat(4)
    model = net(1).double()
    full, lossy = (
        teacher_from(model, (x, y), quantiser=Clusters(m), pixel_values=p, generator=generator)
        for m, p in ((2000, 2000), (2, 2))
    )
    exact, broken = (diagnose(model, teacher, regions=9).layers for teacher in (full, lossy))
    assert exact[0].focus.value < 1e-6
    assert exact[1].forward.value < 1e-6
    assert exact[1].activations.value < 1e-6
    assert broken[1].forward.value > 0.05
    assert broken[0].activations.value > 0.05


def test_a_diagnosis_in_words_with_patches_and_factors(model, digits):
    teacher = teacher_from(model, digits, quantiser=SignPattern(2))
    found = diagnose(model, teacher, regions=16, patches=3)
    assert [layer.layer for layer in found.layers] == ["1", "5", "output"]
    assert len(found.words()) == 4
    assert "Eq. 7 misses f(z) by" in found.words()[0]
    first = found.layers[0]
    assert first.disentanglement >= first.variance_score
    assert 0 <= found.layers[1].inseparable < 1
    assert first.selectivity.shape == (3, 4)
    assert found.layers[1].label_selectivity.shape == (4, 10)
    patches = found.patches[0]
    f = by_position(model[:2](digits[0]))
    place = int(patches.regions[1][0].removeprefix("h1_"))
    assert patches.strengths[1, 0].item() == pytest.approx(f[int(patches.examples[1, 0]), place, 1].item())
    assert set(found.updates) == {"0.weight", "3.weight", "7.weight"}
    assert found.loss == pytest.approx(nn.functional.cross_entropy(model(digits[0]), digits[1]).item())


def test_selectivity_is_a_correlation(model, teacher, digits):
    found = diagnose(model, teacher, regions=4).layers[1]
    f, y = by_position(model[:6](digits[0])).detach(), digits[1]
    by_hand = np.mean([np.corrcoef(f[:, r, 2], (y == 7).double())[0, 1] for r in range(4)])
    assert found.label_selectivity[2, 7].item() == pytest.approx(by_hand)


def test_another_network_with_the_same_layers_is_a_student(teacher):
    other = diagnose(net(5).double(), teacher, regions=4)
    assert other.layers[0].focus.value > 0
    wide = nn.Sequential(nn.Conv2d(1, 2, 5), nn.ReLU(), nn.Flatten(), nn.Linear(32, 10)).double()
    with pytest.raises(InputError, match="use the same layers"):
        diagnose(wide, teacher)


def test_sorted_data_show_every_class(model, digits):
    """The first examples of CIFAR-10 (JPEG) are all of one class."""
    x, y = digits
    order = y.argsort(stable=True)
    teacher = teacher_from(model, (x[order], y[order]), limit=100)
    assert len(teacher.y) == 100
    assert len(teacher.y.unique()) == 10
    data = replace(load("digits"), train_x=load("digits").train_x[:240][order], train_y=y[order])
    assert len(teacher_from(model, data, limit=60).y.unique()) == 10
    # The variance that z keeps is measured on all classes, too: with their order it does not change.
    few = teacher_from(model, (x, y), limit=240)
    again = replace(few, x=few.x[order], y=few.y[order], codes=tuple(code[order] for code in few.codes))
    assert _variance_kept(again, 120)[1] == pytest.approx(_variance_kept(few, 120)[1], abs=0.05)


@pytest.mark.parametrize("labels", [torch.zeros(240, dtype=torch.long), torch.arange(240) % 3])
def test_classes_that_do_not_occur_keep_their_output(model, digits, labels):
    """The loss was that of fewer outputs than the network has, or of one output for all."""
    found = diagnose(model, teacher_from(model, (digits[0], labels)), regions=2)
    assert found.loss == pytest.approx(nn.functional.cross_entropy(model(digits[0]), labels).item())
    assert found.layers[0].label_selectivity.shape == (3, 10)


def test_a_max_pooling_keeps_its_winners():
    """A mean does not choose: the network is run on means with the winners of the example itself."""
    model, x = net().double(), torch.rand(4, 1, 8, 8)
    regions, winners = regions_of(model, x), Winners()
    kept = regions.run(x, None, winners)[2]
    torch.testing.assert_close(kept, model(x))
    other = torch.rand(4, 1, 8, 8)
    hidden = model[1](model[0](other))
    chosen = nn.functional.max_pool2d_with_indices(model[1](model[0](x)), 2)[1]
    pooled = hidden.flatten(2).gather(2, chosen.flatten(2)).view(chosen.shape)
    torch.testing.assert_close(regions.run(other, None, winners)[2], model[3:](pooled))
    assert not torch.allclose(regions.run(other, None, winners)[2], model(other))


def test_one_certain_error_is_not_noise():
    """An error going up that is certain was called noise because the larger one, going down, was not."""
    certain, noisy = Gap(0.08, 0.079, 0.081), Gap(0.35, 0.0, 0.51)
    assert "noise" not in _degree([certain, noisy])
    assert "nearly hold" in _degree([certain])
    assert "noise" in _degree([noisy])
    assert "badly" in _degree([Gap(1.0, 0.6, 1.2), certain])
    assert str(Gap(0.0143, 0.0141, 0.0146)) == "0.014 (0.014 to 0.015)"


@pytest.mark.parametrize("gate", [nn.SiLU(), nn.ReLU6()])
def test_gates_that_are_not_those_of_a_relu_are_refused(gate, digits):
    """For a SiLU f is not f' times f^raw; it was measured as if its gate were a bit."""
    model = nn.Sequential(nn.Conv2d(1, 3, 3), gate, nn.Flatten(), nn.Linear(108, 10)).double()
    with pytest.raises(UnsupportedModelError, match="use ReLU or LeakyReLU gates"):
        teacher_from(model, digits)


def test_unusable_data_are_refused(model, digits):
    x, y = digits
    with pytest.raises(InputError, match="labels go up to 10, but the network returns 10 numbers"):
        teacher_from(model, (x, y + 1))
    for option in ("regions", "batch", "patches"):
        with pytest.raises(InputError, match=f"{option} is 0"):
            diagnose(model, teacher_from(model, (x, y)), **{option: 0})
    with pytest.raises(InputError, match="whole number from 0"):
        teacher_from(model, (x, y.double()))
    with pytest.raises(InputError, match="is in training mode"):
        teacher_from(net().double().train(), digits)
    with pytest.raises(InputError, match="intervals need 40 or more"):
        diagnose(model, teacher_from(model, (x[:20], y[:20])))


def test_the_jackknife_removes_noise_and_keeps_signal():
    """Of means of pure noise nothing is left on average; a mean of 1 is found within its interval."""
    rng = np.random.default_rng(0)
    noise, covered = [], 0
    for _ in range(200):
        draws = rng.normal(size=(20, 10))
        for shift in (0.0, 1.0):
            values = draws + shift
            without = [float(np.delete(values, group, axis=0).mean() ** 2) for group in range(20)]
            gap = jackknife(float(values.mean() ** 2), without)
            if shift:
                covered += gap.low <= 1 <= gap.high
            else:
                noise.append(20 * values.mean() ** 2 - 19 * np.mean(without))
    assert abs(np.mean(noise)) < 4 * np.std(noise) / 200**0.5
    assert covered > 180
