"""Models as people write them: blocks, wrappers, reshapes, odd convolutions."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.attacks.models import dense_models
from tests.attacks.models.cases import EVERYTHING, NO_REGION, case, forward_of


class Block(nn.Module):
    """A residual block that uses functions only."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1, bias=False)

    def forward(self, x, *, scale=1.0):
        """Return relu(x + scale · conv(x))."""
        return F.relu(torch.add(x, self.conv(x), alpha=scale))


@case((1, 3, 3), documented=NO_REGION)
def functional_residual_blocks():
    def forward(m, x):
        h = m.stem(x)
        for block in m.blocks:
            h = block(h, scale=0.5)
        return m.head(h).mean((2, 3))

    blocks = nn.ModuleList([Block(), Block()])
    return forward_of(forward, stem=nn.Conv2d(1, 2, 1), blocks=blocks, head=nn.Conv2d(2, 1, 1))


@case((2, 2, 2), documented=("gates", "twin", "tangent kernel", "paths"))
def pixels_as_tokens():
    """As einops writes "b c h w -> b (h w) c"."""

    def forward(m, x):
        b, c, h, w = x.shape
        tokens = x.reshape(b, c, h * w).permute(0, 2, 1)
        tokens = F.relu(m.first(tokens))
        return m.head(tokens.transpose(1, 2).reshape(b, 2, h, w)).flatten(1)

    return forward_of(forward, first=nn.Linear(2, 2), head=nn.Conv2d(2, 1, 2))


@case((4,), documented=("gates", "twin", "tangent kernel", "paths"))
def heads_split_and_merged():
    def forward(m, x):
        n = x.size(0)
        heads = m.first(x.view(n, 2, 2)).relu()
        return m.head(heads.transpose(1, 2).contiguous().view(n, -1))

    return forward_of(forward, first=nn.Linear(2, 2), head=nn.Linear(4, 1))


@case(documented=EVERYTHING)
def chunks_of_a_layer():
    def forward(m, x):
        a, b = m.first(x).chunk(2, dim=-1)
        return m.head(torch.cat((F.relu(a), b), dim=-1))

    return forward_of(forward, first=nn.Linear(2, 4), head=nn.Linear(4, 1))


@case((4, 3, 3), documented=NO_REGION)
def channels_split_in_unequal_parts():
    def forward(m, x):
        a, b = torch.split(x, [1, 3], dim=1)
        return m.head(torch.cat([F.relu(m.first(a)), F.relu(b)], 1)).flatten(1)

    return forward_of(forward, first=nn.Conv2d(1, 1, 3, padding="same", bias=False), head=nn.Conv2d(4, 1, 1))


class Skipping(nn.Sequential):
    """A sequence with a forward of its own."""

    def forward(self, x):
        """Return the input beside what the layers make of it."""
        return torch.cat([x, super().forward(x)], 1)


@case(documented=EVERYTHING)
def a_sequential_with_its_own_forward():
    return nn.Sequential(Skipping(nn.Linear(2, 2), nn.ReLU()), nn.Linear(4, 1))


class Shared(nn.Module):
    """Layers with one activation module for all of them."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU(inplace=True)
        self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])

    def forward(self, x):
        """Run all layers with the same activation."""
        for place, layer in enumerate(self.layers):
            x = layer(x) if place == 0 else layer(self.act(x))
        return self.act(x)


case(name="one_activation_for_all_layers", documented=EVERYTHING)(Shared)


@case(documented=NO_REGION)
def a_slice_overwritten():
    def forward(m, x):
        h = m.first(x)
        h[:, :2] = F.relu(h[:, :2])
        h[:, 2:] *= 2.0
        return m.head(h)

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


def _joined(model):
    return forward_of(lambda m, x: m.head(torch.cat([F.relu(m.first(x)), x], 1)), first=model.first, head=model.head)


@case(documented=EVERYTHING, plain=_joined)
def a_preallocated_buffer_filled():
    def forward(m, x):
        out = torch.zeros(x.shape[0], 4, dtype=x.dtype)
        out[:, :2] = F.relu(m.first(x))
        out[:, 2:] = x
        return m.head(out)

    return forward_of(forward, first=nn.Linear(2, 2), head=nn.Linear(4, 1))


@case((3, 2, 2), documented=NO_REGION)
def channels_of_an_image_overwritten():
    def forward(m, x):
        h = m.first(x)
        h[:, 1:] = F.relu(h[:, 1:])
        h[:, 0] = x[:, 0]
        return m.head(h).flatten(1)

    return forward_of(forward, first=nn.Conv2d(3, 3, 1, bias=False), head=nn.Conv2d(3, 1, 1))


def _plain_sequence(model):
    model(torch.zeros(1, 2))
    copied = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    for ours, theirs in zip(copied, (model[0], None, model[2]), strict=True):
        if theirs is not None:
            ours.weight.data, ours.bias.data = theirs.weight.detach().clone(), theirs.bias.detach().clone()
    return copied


@case(documented=("gates", "tangent kernel"), plain=_plain_sequence)
def weight_norm_on_both_layers():
    norm = parametrizations.weight_norm
    return nn.Sequential(norm(nn.Linear(2, 3)), nn.ReLU(), norm(nn.Linear(3, 1)))


@case(documented=("gates", "tangent kernel"), plain=_plain_sequence)
def spectral_norm_on_the_first_layer():
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(2, 3)), nn.ReLU(), nn.Linear(3, 1))


class Symmetric(nn.Module):
    """A parametrization."""

    def forward(self, weight):
        """Return the symmetric part."""
        return weight.triu() + weight.triu(1).mT


@case(documented=("gates", "tangent kernel"), plain=dense_models.plain_copy)
def a_parametrized_linear():
    square = nn.Linear(2, 2)
    parametrize.register_parametrization(square, "weight", Symmetric())
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), square, nn.ReLU(), nn.Linear(2, 1))


@case(documented=EVERYTHING)
def lazy_layers_after_a_first_run():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(1))
        model(torch.zeros(1, 2))
    return model


@case((1, 3, 3), documented=NO_REGION)
def lazy_convolutions_after_a_first_run():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Sequential(nn.LazyConv2d(1, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(1, bias=False))
        model(torch.zeros(1, 1, 3, 3))
    return model


@case(documented=EVERYTHING, plain=lambda model: model.module)
def data_parallel():
    return nn.DataParallel(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))


@case(documented=EVERYTHING, plain=lambda model: model._orig_mod)
def compiled_from_outside():
    return torch.compile(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), backend="eager")


@case((2, 6), documented=NO_REGION)
def one_dimensional():
    return nn.Sequential(
        nn.Conv1d(2, 2, 2, stride=2), nn.ReLU(), nn.MaxPool1d(2, 1), nn.Conv1d(2, 1, 2, bias=False), nn.Flatten()
    )


@case((1, 2, 3, 3), documented=NO_REGION)
def three_dimensional():
    return nn.Sequential(
        nn.Conv3d(1, 2, (1, 2, 2)), nn.ReLU(), nn.AvgPool3d((2, 1, 1)), nn.Conv3d(2, 1, (1, 2, 1)), nn.Flatten()
    )


@case((1, 2, 2), documented=NO_REGION)
def transposed():
    return nn.Sequential(
        nn.ConvTranspose2d(1, 2, 2, stride=2), nn.ReLU(), nn.ConvTranspose2d(2, 1, (1, 2), bias=False), nn.Flatten()
    )


@case((1, 3, 3), documented=("gates", "twin", "tangent kernel", "paths"))
def shuffled_upwards():
    return nn.Sequential(
        nn.Conv2d(1, 4, 1), nn.PixelShuffle(2), nn.ReLU(), nn.Conv2d(1, 1, 2, stride=2), nn.ReLU(), nn.Flatten()
    )


@case((1, 4, 4), documented=NO_REGION)
def an_adaptive_maximum():
    return nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(8, 1))


@case((3,), documented=NO_REGION)
def experts_by_columns():
    """Some columns go to one expert, the others to another."""

    def forward(m, x):
        return m.head(F.relu(m.first(x[:, [0, 2]])) + F.relu(m.second(x[:, 1:])))

    return forward_of(forward, first=nn.Linear(2, 2), second=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case(documented=())
def experts_by_rows():
    """Each example goes to the expert that its first column names: control flow by indexing."""

    def forward(m, x):
        out = torch.empty(x.shape[0], 1, dtype=x.dtype)
        left = x[:, 0] > 0
        out[left], out[~left] = m.first(x[left]).relu(), m.second(x[~left]).relu()
        return out

    return forward_of(forward, first=nn.Linear(2, 1), second=nn.Linear(2, 1))


@case(documented=EVERYTHING)
def a_standardised_input():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first((x - m.mean) / m.std))),
        first=nn.Linear(2, 3),
        head=nn.Linear(3, 1),
        mean=torch.tensor([0.3, -0.2]),
        std=torch.tensor([0.5, 2.0]),
    )


@case(documented=("gates", "twin", "tangent kernel", "paths"))
def a_fixed_mixing_matrix():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first(x)) @ m.mix),
        first=nn.Linear(2, 3),
        head=nn.Linear(3, 1),
        mix=torch.randn(3, 3),
    )


@case((1, 3, 3), documented=NO_REGION)
def a_fixed_mask_of_pixels():
    return forward_of(
        lambda m, x: m.head((F.relu(m.first(x)) * m.mask).flatten(1)),
        first=nn.Conv2d(1, 1, 2),
        head=nn.Linear(4, 1),
        mask=torch.tensor([[1.0, 0.0], [0.5, -1.0]]),
    )


@case(documented=EVERYTHING)
def a_stochastic_depth_in_evaluation():
    def forward(m, x):
        h = F.relu(m.first(x))
        if m.training and torch.rand(()) < 0.5:
            return m.head(h)
        return m.head(h + F.relu(m.second(h)))

    return forward_of(forward, first=nn.Linear(2, 2), second=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case((2, 4, 4), documented=("gates", "twin", "tangent kernel"))
def a_bottleneck_with_batch_norms():
    def forward(m, x):
        h = F.relu(m.bn1(m.reduce(x)), inplace=True)
        h = F.relu(m.bn2(m.space(h)), inplace=True)
        h = m.bn3(m.grow(h))
        h += m.skip(x)
        return F.adaptive_avg_pool2d(F.relu(h, inplace=True), 1).flatten(1)

    return forward_of(
        forward,
        reduce=nn.Conv2d(2, 1, 1, bias=False),
        space=nn.Conv2d(1, 1, 2, stride=2, bias=False),
        grow=nn.Conv2d(1, 2, 1, bias=False),
        skip=nn.Conv2d(2, 2, 1, stride=2, bias=False),
        **{f"bn{place}": nn.BatchNorm2d(channels) for place, channels in ((1, 1), (2, 1), (3, 2))},
    )


@case((2, 4), documented=("gates", "tangent kernel"))
def a_token_mixer():
    def forward(m, x):
        x = x + m.tokens(x)
        return m.head(F.relu(x.transpose(1, 2))).mean(1)

    return forward_of(forward, tokens=nn.Linear(4, 4, bias=False), head=nn.Linear(2, 1, bias=False))


@case((1, 4, 4), documented=("gates", "tangent kernel"))
def a_u_net():
    def forward(m, x):
        skip = F.relu(m.down(x))
        h = F.relu(m.middle(F.max_pool2d(skip, 2)))
        h = F.interpolate(h, scale_factor=2, mode="nearest")
        return m.head(torch.cat([h, skip], 1)).flatten(1)

    return forward_of(forward, down=nn.Conv2d(1, 1, 1), middle=nn.Conv2d(1, 1, 1), head=nn.Conv2d(2, 1, 2))
