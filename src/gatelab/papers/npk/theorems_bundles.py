"""The path kernel beyond fully connected networks: bundles of paths that share their weights (npk, generalised).

DGN: deep gated network.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from gatelab.convert import GatedTwin, Regime, to_dgn
from gatelab.figures import Plot
from gatelab.kernels import neural_path_kernel, neural_tangent_kernel, path_features, value_tangent_kernel
from gatelab.lab.measure import ErrorFlow, Mean, against, all_signs, identity, relative_error, tangent_kernels
from gatelab.lab.theorem import Measurement, theorem
from gatelab.lab.verdicts import Check
from gatelab.lab.verdicts.fits import fitted_power
from gatelab.models.init import initialise
from gatelab.papers.common import agrees, at_least, dots, measurement, power_law
from gatelab.papers.npk.theorems import COUPLED, SMALL_STEP
from gatelab.papers.npk.theorems_gated import BEYOND_TOLERANCE
from gatelab.paths import neural_path_features, neural_path_values


@theorem(
    "npk-rotation", "Convolutional bundles", "H of a circular CNN with global pooling ignores rotations of an input"
)
def rotation_invariance(seed: int) -> Measurement:
    """Path bundles that differ by a shift share their weights: rotate one input and compare the kernel's row."""
    generator = torch.Generator().manual_seed(seed)
    options = {"padding": 1, "padding_mode": "circular", "bias": False, "dtype": torch.float64}
    pooled = nn.Sequential(
        nn.Conv2d(2, 6, 3, **options), nn.ReLU(), nn.Conv2d(6, 5, 3, **options), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    )
    model = nn.Sequential(*pooled.children(), nn.Flatten(), nn.Linear(5, 1, bias=False, dtype=torch.float64))
    initialise(model, generator)
    x = torch.randn(4, 2, 6, 5, generator=generator, dtype=torch.float64)
    x += torch.tensor([-0.5, -0.5, 0.5, 0.5], dtype=torch.float64).view(4, 1, 1, 1)  # so that some entries are negative
    kernel = neural_path_kernel(model, x)
    rotated = torch.stack([neural_path_kernel(model, x.roll((a, b), (2, 3)), x) for a, b in ((1, 0), (0, 2), (3, 4))])
    flattened = nn.Sequential(*list(pooled.children())[:4], nn.Flatten(), nn.Linear(150, 1, dtype=torch.float64))
    moved = relative_error(neural_path_kernel(flattened, x.roll(1, 2), x), neural_path_kernel(flattened, x))
    others = relative_error(kernel.roll(1, 1), kernel)
    features, fans = neural_path_features(model, x), 6 * 9 * 5  # of the layers after the first, by which H is divided
    linear = nn.Sequential(*(nn.LeakyReLU(1.0) if isinstance(part, nn.ReLU) else part for part in model))
    return measurement(
        against(rotated, kernel.expand_as(rotated), "H(s, s') after three rotations"),
        identity("H(rotated x, x') against H(x, x')", rotated, kernel.expand_as(rotated)),
        identity("H against the bundles, listed", kernel, features @ features.T / fans),
        at_least(
            "rel. error of H with all gates open", relative_error(neural_path_kernel(linear, x), kernel), 0.05, CLOSE
        ),
        at_least("rel. error of |H|", relative_error(kernel.abs(), kernel), 0.01, "entries have signs"),
        at_least("rel. change of H, flattened instead of pooled", moved, 0.05, "positions keep their own weights"),
        at_least("rel. distance of H(x, x') from H(x, x'')", others, 0.05, "H tells inputs apart"),
    )


CLOSE = "gates close paths"


@theorem("npk-residual", "Residual bundles", "H of a residual network is the sum of H over its sub-networks")
def residual_sum(seed: int) -> Measurement:
    """Two blocks x + W relu(V x): four sub-networks, the gates of the whole in each."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    width = 5
    stem, *inner = (nn.Linear(a, b, bias=False, dtype=torch.float64) for a, b in ((3, width), *((width, width),) * 4))
    model = _Residual(stem, inner, nn.Linear(width, 1, bias=False, dtype=torch.float64))
    initialise(model, generator)
    whole = neural_path_kernel(model, x, normalise=False)
    gates, hidden = [], x @ stem.weight.T  # written out: a capture would serve both sides
    for into, out in zip(inner[::2], inner[1::2], strict=True):
        gates.append((hidden @ into.weight.T > 0).double())
        hidden = hidden + torch.relu(hidden @ into.weight.T) @ out.weight.T
    # Through a branch a path passes any unit open for both (τ), then any unit of the next layer; past it, it stays.
    overlaps = [gate @ gate.T for gate in gates]
    gram = x @ x.T
    parts = [
        gram * width,  # past both blocks: one layer of units before the head
        gram * width * overlaps[0] * width,
        gram * width * overlaps[1] * width,
        gram * width * overlaps[0] * width * overlaps[1] * width,
    ]
    total = torch.stack(parts).sum(dim=0)
    return measurement(
        against(whole, total, "H(s, s')"),
        identity("H against the sum", whole, total),
        at_least("rel. error without the paths past a block", relative_error(parts[-1], whole), 0.01, PAST),
        at_least(
            "rel. error with all gates open", relative_error(gram * width * (1 + width**2) ** 2, whole), 0.1, OPEN
        ),
    )


PAST = "an identity skip is a sub-network"
OPEN = "each sub-network has the gates of the whole"


class _Residual(nn.Module):
    def __init__(self, stem: nn.Linear, inner: list[nn.Linear], head: nn.Linear):
        super().__init__()
        self.stem, self.inner, self.head = stem, nn.ModuleList(inner), head

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for into, out in zip(self.inner[::2], self.inner[1::2], strict=True):
            h = h + out(torch.relu(into(h)))
        return self.head(h)


@theorem(
    "npk-bundles",
    "Propositions 2.1, 3.1 for bundles",
    "With a feature and a value for each bundle of paths that share their weights, ŷ = ⟨φ, v⟩, H = ΦᵀΦ and K = Φᵀ𝒱Φ",
)
def listed_bundles(seed: int) -> Measurement:
    """List the bundles of a small convolutional and of a residual network."""
    checks, curves = [], []
    for name, twin, x in _twins(seed, Regime.FRNPF_II):
        features, values = neural_path_features(twin, x), neural_path_values(twin, x)
        kernel = neural_tangent_kernel(twin, x, wrt=twin.value)
        listed = features @ value_tangent_kernel(twin, x) @ features.T
        path_kernel = neural_path_kernel(twin, x, normalise=False)
        apart = features @ (value_tangent_kernel(twin, x).diagonal()[:, None] * features.T)
        checks += [
            identity(f"{name}, {len(values)} bundles: ŷ against ⟨φ, v⟩", twin(x).detach(), features @ values),
            identity(f"{name}: H against ΦᵀΦ", path_kernel, features @ features.T),
            identity(f"{name}: K against Φᵀ𝒱Φ", kernel, listed),
            at_least(
                f"{name}: K without what bundles share, rel. error", relative_error(apart, kernel), 0.01, CONTRAST
            ),
        ]
        curves.append(dots(name, listed, kernel))
    return measurement(Plot("Φᵀ𝒱Φ", "K", tuple(curves), diagonal="both sides equal"), *checks)


CONTRAST = "bundles share weights: their gradients are not orthogonal"


def _twins(seed: int, regime: Regime) -> list[tuple[str, GatedTwin, Tensor]]:
    """A convolutional and a residual DGN with few value weights, and examples for each."""
    generator = torch.Generator().manual_seed(seed)
    kind = {"bias": False, "dtype": torch.float64}
    convolutional = nn.Sequential(
        *(nn.Conv2d(1, 1, (1, 2), **kind), nn.LeakyReLU(0.2), nn.Conv2d(1, 2, (1, 2), **kind), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 1, **kind)),
    )
    stem, into, out, head = (nn.Linear(a, b, **kind) for a, b in ((2, 2), (2, 1), (1, 2), (2, 1)))
    networks = (
        ("CNN", convolutional, torch.randn(5, 1, 2, 5, generator=generator, dtype=torch.float64)),
        ("residual", _Residual(stem, [into, out], head), torch.randn(5, 2, generator=generator, dtype=torch.float64)),
    )
    return [(name, to_dgn(initialise(net, generator), regime, generator=generator), x) for name, net, x in networks]


@theorem(
    "npk-4.1-bundles",
    "Proposition 4.1 for bundles",
    "In a convolutional or residual DGN ė = −K^V e with fixed gates, −(K^V + K^F) e with learnt ones",
)
def gradient_flow_of_bundles(seed: int) -> Measurement:
    """Central differences along the flow against the tangent kernels of values and gates."""
    checks, curves = [], []
    for regime, twins in ((Regime.FRNPF_II, _twins(seed, Regime.FRNPF_II)), (Regime.DNPFL, _learning_twins(seed))):
        for name, twin, x in twins:
            flow = ErrorFlow(twin, x, _target(x), None if regime is Regime.DNPFL else twin.value)
            error = flow.error(flow.parameters).detach()
            kernel = value_kernel = neural_tangent_kernel(twin, x, wrt=twin.value)
            if regime is Regime.DNPFL:
                kernel = kernel + neural_tangent_kernel(twin, x, wrt=twin.feature)
            predicted = -kernel @ error
            rate = flow.error_rate(flow.time_to_move(SMALL_STEP))
            alone = -kernel.diagonal() * error
            label, because = f"{name}, {regime.name}", "a central difference; the weights move by 1e-5"
            checks.append(agrees(f"{label}: ė", rate, predicted, 1e-6, because))
            checks.append(at_least(f"{label}: rel. error of K's diagonal", relative_error(alone, rate), 0.01, COUPLED))
            if regime is Regime.DNPFL:
                without = relative_error(-value_kernel @ error, rate)
                checks.append(at_least(f"{label}: rel. error of −K^V e", without, 1e-4, BEYOND_TOLERANCE))
            curves.append(dots(label, predicted, rate))
    return measurement(Plot("predicted ė", "measured ė", tuple(curves), diagonal="measured = predicted"), *checks)


def _target(x: Tensor) -> Tensor:
    return torch.sin(torch.arange(len(x), dtype=torch.float64))


def _learning_twins(seed: int) -> list[tuple[str, GatedTwin, Tensor]]:
    """For each network, of ten draws with learnt gates, the one in which K^F matters most: in some it hardly does."""
    draws = [_twins(1000 * seed + draw, Regime.DNPFL) for draw in range(10)]
    return [max(kind, key=lambda drawn: _share_of_gates(*drawn[1:])) for kind in zip(*draws, strict=True)]


def _share_of_gates(twin: GatedTwin, x: Tensor) -> float:
    """Return the largest K^F e, relative to K^V e."""
    error = twin(x).detach().squeeze(1) - _target(x)
    of_features, of_values = (neural_tangent_kernel(twin, x, wrt=part) @ error for part in (twin.feature, twin.value))
    return (of_features.abs().max() / of_values.abs().max()).item()


@theorem(
    "npk-5.1-bundles",
    "Theorem 5.1 for bundles",
    "With fixed gates and ±σ values E[K] = Σ_ℓ ℓ σ^{2(ℓ−1)} H_ℓ, H_ℓ the path kernel of the paths of length ℓ",
)
def expected_tangent_kernel_of_bundles(seed: int) -> Measurement:
    """All sign patterns of a tiny convolutional network (all paths of length 3) and a residual one (2 and 4)."""
    checks, curves, sigma = [], [], 0.9  # σ = 1 would hide a wrong exponent
    for name, twin, x in _twins(seed, Regime.FRNPF_II):
        values = {f"value.{key}": parameter for key, parameter in twin.value.named_parameters()}
        weights = all_signs(values, sigma)
        kernels = tangent_kernels(twin, x, weights)
        mean = Mean(kernels)
        twin.load_state_dict({key: tensor[0] for key, tensor in weights.items()}, strict=False)
        library = neural_tangent_kernel(twin, x, wrt=twin.value)
        checks.append(identity(f"{name}: K of one pattern against autograd", library, kernels[0]))
        checks.append(
            at_least(f"{name}: rel. error of K of one pattern", relative_error(kernels[0], mean.mean), 0.01, VARIES)
        )
        whole = neural_path_kernel(twin, x, normalise=False)
        by_length = {3: whole}
        if name == "residual":
            past = x @ x.T * 2  # stem and head alone, past the block: two units between them
            by_length = {2: past, 4: whole - past}
            one_length = relative_error(4 * sigma**6 * whole, mean.mean)
            checks.append(at_least("residual: rel. error if all paths had length 4", one_length, 0.01, SHORT))
        predicted = sum((n * sigma ** (2 * (n - 1)) * part for n, part in by_length.items()), torch.zeros_like(whole))
        checks.append(identity(f"{name}: E[K] over all {mean.count} sign patterns", mean.mean, predicted))
        curves.append(dots(name, predicted, mean.mean))
    return measurement(Plot("predicted", "E[K], measured", tuple(curves), diagonal="measured = predicted"), *checks)


VARIES = "only the mean over patterns is Σ_ℓ ℓ σ^{2(ℓ−1)} H_ℓ"
SHORT = "paths past the block are shorter"


@theorem(
    "npk-C-sketch",
    "Appendix C as a sketch",
    "Gated activations of wide random value networks estimate H without bias; the error falls as dim^(−1/2)",
)
def random_features(seed: int) -> Measurement:
    """A convolutional network with max-pooling, LeakyReLU and global average; 40 sketches at each dimension."""
    generator = torch.Generator().manual_seed(seed)
    kind = {"padding": 1, "dtype": torch.float64}
    model = nn.Sequential(
        *(nn.Conv2d(2, 8, 3, **kind), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, **kind), nn.LeakyReLU(0.1)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1, dtype=torch.float64)),
    )
    initialise(model, generator)
    x = torch.randn(4, 2, 6, 6, generator=generator, dtype=torch.float64)
    exact, dims, draws = neural_path_kernel(model, x), [32, 128, 512], 40
    foreign = neural_path_kernel(initialise(deepcopy(model), generator), x)
    errors, z_scores, foreign_z = [], [], 0.0
    for dim in dims:
        sketches = [path_features(model, x, dim, generator) for _ in range(draws)]
        grams = [features @ features.T for features in sketches]
        z_scores.append(Mean.of(grams).z_score(exact))
        foreign_z = Mean.of(grams).z_score(foreign)
        errors.append((torch.stack(grams) - exact).square().mean().sqrt().item() / exact.diagonal().mean().item())
    order = fitted_power(dims, errors)
    y_label = "root mean squared error, relative to the mean diagonal"
    return measurement(
        power_law("dim", y_label, dims, errors, -0.5, "dim^(−1/2)"),
        Check(f"E⟨φ̂, φ̂'⟩ against H, {draws} sketches, |z|", max(z_scores), 5.0, "five standard errors"),
        Check("|exponent of the error + ½|", abs(order + 0.5), 0.15, "three standard errors of the fit"),
        at_least("|z| against H of other weights, dim 512", foreign_z, 6.0, "more than chance would give"),
    )
