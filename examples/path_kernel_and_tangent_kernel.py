# %% [markdown]
# # The path kernel against the tangent kernel
#
# The tangent kernel K of a network compares gradients, the path kernel H compares open paths. Used as kernel machines, which of them
# knows what the network has learnt, before and after training?

# %%
import torch
from torch import nn

import gatelab as gl
from gatelab.figures import Heatmap, Panels
from gatelab.kernels import label_complexity

torch.manual_seed(0)
torch.set_num_threads(1)
digits = gl.data.load("digits")
x, y = digits.inputs(digits.train_x).flatten(1)[:600], digits.train_y[:600]
test_x, test_y = digits.inputs(digits.test_x).flatten(1), digits.test_y
targets = nn.functional.one_hot(y, 10).double() - 0.1


def ridge_accuracy(kernel, test_kernel, ridge=1e-3):
    """Kernel ridge regression on one-hot targets, scored as a classifier."""
    kernel, test_kernel = kernel.double().detach(), test_kernel.double().detach()
    scale = kernel.diag().mean()
    weights = torch.linalg.solve(kernel + ridge * scale * torch.eye(len(kernel), dtype=torch.float64), targets)
    return float(((test_kernel @ weights).argmax(1) == test_y).double().mean())


def look(net, when):
    H, K = gl.neural_path_kernel(net, x), gl.neural_tangent_kernel(net, x)
    rows = {
        "path kernel H": (H, gl.neural_path_kernel(net, test_x, x)),
        "tangent kernel K": (K, gl.neural_tangent_kernel(net, test_x, x)),
    }
    for name, (kernel, test_kernel) in rows.items():
        nu = label_complexity(kernel.double().detach(), targets)
        print(f"{when:<15} {name:<17} accuracy {ridge_accuracy(kernel, test_kernel):.1%}   ν {nu:,.0f}")
    order = y[:100].argsort()
    cosine = H[order][:, order] / (H.diag()[order, None] * H.diag()[order]).sqrt()
    return Heatmap(f"H, {when}", tuple(map(tuple, cosine.tolist())), low=0.0, high=1.0, scale="cosine")


# %% [markdown]
# At the start, and after training on the same 600 digits:

# %%
net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
before = look(net, "at the start")
optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
for _step in range(800):
    optimiser.zero_grad()
    nn.functional.cross_entropy(net(x), y).backward()
    optimiser.step()
after = look(net, "after training")
with torch.no_grad():
    print(f"{'':<15} {'the network':<17} accuracy {(net(test_x).argmax(1) == test_y).double().mean():.1%}")

# %% [markdown]
# A hundred digits, ordered by class:

# %%
Panels((before, after), columns=2)

# %% [markdown]
# H knows nothing of the weights' values, only which paths are open. Where its accuracy rises and ν falls, the *gates* have learnt. On
# 600 easy digits that does not happen: random gates are already enough, H is as good before training as after, and ν rises. Try it on
# your data.
#
# For a bias-free dense network H is the input's Gram matrix times the overlap of gates, Σ ⊙ Λ, and random features estimate it in time
# linear in the number of examples:

# %%
exact = gl.neural_path_kernel(net, x[:200]).detach()
for dim in (256, 1024, 4096):
    phi = gl.path_features(net, x[:200], dim=dim, generator=torch.Generator().manual_seed(0)).detach()
    error = (phi @ phi.T - exact).norm() / exact.norm()
    print(f"dim {dim:>5}: relative error {error:.3f}")
