"""Dense models in unusual styles: skips, shared and tied weights, views, hooks, parametrizations."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from tests.attacks.models.cases import EVERYTHING, NO_REGION, case, forward_of


def chain(*gates: nn.Module) -> nn.Sequential:
    """Three dense layers of two units with the given activations between them."""
    first, second = gates if len(gates) == 2 else (*gates, *gates)
    return nn.Sequential(nn.Linear(2, 2), first, nn.Linear(2, 2), second, nn.Linear(2, 1))


def plain_copy(model: nn.Module) -> nn.Module:
    """The same layers without parametrizations or hooks, their weights as a forward pass leaves them."""
    model(torch.zeros(1, 2))
    copied = chain(nn.ReLU())
    for ours, theirs in zip(copied, model, strict=True):
        if isinstance(ours, nn.Linear):
            ours.weight.data, ours.bias.data = theirs.weight.detach().clone(), theirs.bias.detach().clone()
    return copied


@case(documented=EVERYTHING)
def one_relu_module_used_twice():
    return chain(nn.ReLU())


@case(documented=EVERYTHING)
def one_in_place_relu_used_twice():
    return chain(nn.ReLU(inplace=True))


@case(documented=EVERYTHING)
def a_skip_from_the_input():
    return forward_of(
        lambda m, x: m.head(torch.cat([x, F.relu(m.first(x))], 1)), first=nn.Linear(2, 2), head=nn.Linear(4, 1)
    )


@case(documented=EVERYTHING)
def the_input_beside_the_output():
    return forward_of(
        lambda m, x: torch.cat([x, m.head(F.relu(m.first(x)))], 1), first=nn.Linear(2, 2), head=nn.Linear(2, 1)
    )


@case(documented=EVERYTHING)
def the_input_added_to_the_output():
    return forward_of(lambda m, x: x + m.head(F.relu(m.first(x))), first=nn.Linear(2, 2), head=nn.Linear(2, 2))


@case(documented=EVERYTHING)
def a_signal_added_to_itself():
    def forward(m, x):
        h = F.relu(m.first(x))
        return m.head(h + h)

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case(documented=EVERYTHING)
def a_signal_concatenated_with_itself():
    def forward(m, x):
        h = F.relu(m.first(x))
        return m.head(torch.cat([h, h], 1))

    return forward_of(forward, first=nn.Linear(2, 2), head=nn.Linear(4, 1))


@case(documented=EVERYTHING)
def a_skip_over_two_gates():
    def forward(m, x):
        h = F.relu(m.first(x))
        return m.head(F.relu(m.second(h)) - 0.5 * h)

    return forward_of(forward, first=nn.Linear(2, 2), second=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case()
def one_layer_used_twice():
    return forward_of(lambda m, x: m.head(F.relu(m.fc(F.relu(m.fc(x))))), fc=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case()
def one_layer_on_two_branches():
    return forward_of(lambda m, x: m.head(F.relu(m.fc(x)) + F.relu(m.fc(-x))), fc=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case()
def tied_parameters():
    model = chain(nn.ReLU())
    model[2].weight = model[0].weight
    return model


@case()
def a_transposed_weight_used_again():
    def forward(m, x):
        return m.head(F.linear(F.relu(m.fc(x)), m.fc.weight.T))

    return forward_of(forward, fc=nn.Linear(2, 2), head=nn.Linear(2, 1))


def _two_layers(model):
    """The halves of ``model.w`` as weights of two layers."""
    layers = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    for layer, half in zip(layers, model.w.detach().split(2), strict=True):
        layer.weight.data = half.clone()
    return nn.Sequential(layers[0], nn.ReLU(), layers[1])


@case(plain=_two_layers)
def halves_of_one_weight():
    return forward_of(lambda m, x: F.linear(F.relu(F.linear(x, m.w[:2])), m.w[2:]), w=nn.Parameter(torch.randn(4, 2)))


def _with_doubled_layer(model):
    """The network of ``a_replaced_forward``, with the factor written down."""
    layer = nn.Linear(2, 2)
    layer.load_state_dict(model.fc.state_dict())
    return forward_of(lambda m, x: m.head(F.relu(2 * m.fc(x))), fc=layer, head=model.head)


@case(plain=_with_doubled_layer)
def a_replaced_forward():
    model = forward_of(lambda m, x: m.head(F.relu(m.fc(x))), fc=nn.Linear(2, 2), head=nn.Linear(2, 1))
    layer = model.fc
    layer.forward = lambda x: 2 * F.linear(x, layer.weight, layer.bias)
    return model


@case(plain=lambda m: nn.Sequential(m[0], nn.LeakyReLU(0.5), m[2], nn.LeakyReLU(0.5), m[4]))
def a_relu_subclass_with_another_slope():
    class Half(nn.ReLU):
        def forward(self, x):
            return F.leaky_relu(x, 0.5)

    return chain(Half(), Half())


@case(plain=lambda m: nn.Sequential(m[0], nn.LeakyReLU(0.5), m[2], nn.ReLU(), m[4]))
def a_patched_relu():
    model = chain(nn.ReLU(), nn.ReLU())
    model[1].forward = lambda x: F.leaky_relu(x, 0.5)
    return model


@case(plain=lambda m: forward_of(lambda p, x: p.m[4](F.relu(p.m[2](3 * F.relu(p.m[0](x))))), m=nn.ModuleList(m)))
def a_forward_hook_that_scales():
    model = chain(nn.ReLU(), nn.ReLU())
    model[1].register_forward_hook(lambda _module, _args, output: 3 * output)
    return model


@case(plain=lambda m: forward_of(lambda p, x: p.m[4](F.relu(p.m[2](F.relu(p.m[0](x) - 0.2)))), m=nn.ModuleList(m)))
def a_pre_hook_that_shifts():
    model = chain(nn.ReLU(), nn.ReLU())
    model[1].register_forward_pre_hook(lambda _module, args: (args[0] - 0.2,))
    return model


@case(plain=lambda m: forward_of(lambda p, x: -p.m[4](F.relu(p.m[2](F.relu(p.m[0](x))))), m=nn.ModuleList(m)))
def a_hook_on_the_whole_model():
    model = chain(nn.ReLU(), nn.ReLU())
    model.register_forward_hook(lambda _module, _args, output: -output)
    return model


@case(plain=plain_copy)
def old_weight_norm():
    model = chain(nn.ReLU(), nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(model[2])
    return model


@case(plain=plain_copy)
def old_spectral_norm():
    model = chain(nn.ReLU(), nn.ReLU())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.spectral_norm(model[2])
    return model


@case(plain=plain_copy)
def parametrized_weight_norm():
    model = chain(nn.ReLU(), nn.ReLU())
    parametrizations.weight_norm(model[0])
    return model


@case(plain=plain_copy)
def parametrized_spectral_norm():
    model = chain(nn.ReLU(), nn.ReLU())
    parametrizations.spectral_norm(model[2])
    return model


@case(plain=plain_copy)
def orthogonal_weights():
    model = chain(nn.ReLU(), nn.ReLU())
    parametrizations.orthogonal(model[2])
    return model


@case(plain=plain_copy)
def a_parametrization_that_doubles():
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight

    model = chain(nn.ReLU(), nn.ReLU())
    parametrize.register_parametrization(model[2], "weight", Double())
    return model


@case(documented=EVERYTHING)
def batch_norm_without_affine():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=False), nn.ReLU(), nn.Linear(3, 1))


@case(documented=EVERYTHING)
def batch_norm_as_the_first_layer():
    return nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))


@case()
def layer_norm_before_a_gate():
    return nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 1))


@case()
def layer_norm_behind_the_last_gate():
    return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2), nn.LayerNorm(2))


@case(documented=NO_REGION)
def dropout_in_evaluation():
    return nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5), nn.ReLU(), nn.AlphaDropout(0.2), nn.Linear(2, 1))


@case(weights=("w", "v"))
def matmul_with_parameters():
    return forward_of(
        lambda m, x: torch.relu(x @ m.w.T) @ m.v.T, w=nn.Parameter(torch.randn(3, 2)), v=nn.Parameter(torch.randn(1, 3))
    )


@case(weights=("w", "v"))
def einsum_with_parameters():
    return forward_of(
        lambda m, x: torch.einsum("nw,kw->nk", torch.relu(torch.einsum("nd,wd->nw", x, m.w)), m.v),
        w=nn.Parameter(torch.randn(3, 2)),
        v=nn.Parameter(torch.randn(1, 3)),
    )


@case(weights=("w",))
def addmm_with_parameters():
    return forward_of(
        lambda m, x: m.head(torch.relu(torch.addmm(m.shift, x, m.w.T))),
        w=nn.Parameter(torch.randn(3, 2)),
        shift=torch.randn(3),
        head=nn.Linear(3, 1),
    )


@case((3, 2), documented=("gates", "twin", "tangent kernel"))
def one_dense_layer_on_every_token():
    return forward_of(lambda m, x: m.head(F.relu(m.first(x)).mean(1)), first=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case((3, 2), documented=("gates", "tangent kernel"))
def tokens_flattened():
    return forward_of(lambda m, x: m.head(F.relu(m.first(x)).flatten(1)), first=nn.Linear(2, 2), head=nn.Linear(6, 1))


@case(documented=EVERYTHING)
def squeezed_and_unsqueezed():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first(x.unsqueeze(1)).squeeze(1))), first=nn.Linear(2, 3), head=nn.Linear(3, 1)
    )


@case(
    documented=EVERYTHING,
    plain=lambda m: forward_of(lambda p, x: p.head(p.first(x).relu()), first=m.first, head=m.head),
)
def a_dead_branch():
    def forward(m, x):
        h = m.first(x)
        F.relu(m.unused(h))
        return m.head(h.relu())

    return forward_of(forward, first=nn.Linear(2, 2), unused=nn.Linear(2, 2), head=nn.Linear(2, 1))


@case()
def a_detached_branch():
    def forward(m, x):
        h = F.relu(m.first(x))
        return m.head(h) + m.other(h.detach())

    return forward_of(forward, first=nn.Linear(2, 2), head=nn.Linear(2, 1), other=nn.Linear(2, 1))


@case()
def a_branch_without_gradients():
    def forward(m, x):
        with torch.no_grad():
            h = F.relu(m.first(x))
        return m.head(h)

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case()
def a_frozen_layer():
    model = chain(nn.ReLU())
    model[0].requires_grad_(False)
    return model


@case(documented=EVERYTHING)
def weights_that_are_zero():
    model = chain(nn.ReLU())
    nn.init.zeros_(model[2].weight)
    return model


@case()
def gates_that_never_open():
    model = chain(nn.ReLU())
    nn.init.constant_(model[0].bias, -50.0)
    return model


@case()
def a_write_to_the_input():
    def forward(m, x):
        x += 1
        return m.head(F.relu(m.first(x)))

    return forward_of(forward, first=nn.Linear(2, 3), head=nn.Linear(3, 1))


@case()
def one_module_under_two_names():
    layer = nn.Linear(2, 2)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.ReLU(), nn.Linear(2, 1))


@case(documented=EVERYTHING)
def a_list_of_layers():
    def forward(m, x):
        for layer in m.layers[:-1]:
            x = layer(x).relu()
        return m.layers[-1](x)

    return forward_of(forward, layers=nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1)]))


@case()
def a_lambda_that_reads_the_mode():
    return forward_of(
        lambda m, x: m.head(F.relu(m.first(x))) * (0.0 if m.training else 1.0),
        first=nn.Linear(2, 3),
        head=nn.Linear(3, 1),
    )
