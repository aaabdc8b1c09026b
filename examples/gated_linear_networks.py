# %% [markdown]
# # Gated linear networks: theory over simulation
#
# If the gates of a network with one hidden layer do not change, it is linear in its weights, and gradient flow has a closed form. Here: four
# units with half-space gates, trained by gradient descent and by formula.

# %%
import torch

from gatelab.dynamics import GatedLinearFlow
from gatelab.figures import Curve, Plot

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
n, d, units = 400, 10, 4
x = torch.randn(n, d)
y = torch.relu(x[:, 0]) + 0.5 * x[:, 1] + 0.1 * torch.randn(n)
normals = torch.randn(units, d)
gates = x @ normals.T > 0  # one gate for each example and unit: a half-space of the input

# %% [markdown]
# The network is ŷ = (1/K) Σ g_k(x) w_kᵀx. The flow needs the moments of the gated inputs alone:

# %%
flow = GatedLinearFlow.from_data(x, y, gates)
times = torch.logspace(-1, 3, 60)
predicted = flow.loss(times)

# %% [markdown]
# The same by gradient descent with a small step, from the same start:

# %%
weights = flow.initial.clone().requires_grad_()
step, simulated, at = 0.05, [], []
for number in range(20_000):
    output = ((x @ weights.T) * gates).sum(1) / units
    loss = 0.5 * (y - output).square().mean()
    if number in {0, 2, 10, 50, 200, 1000, 4000, 19_999}:
        simulated.append(loss.item())
        at.append(number * step)
    (gradient,) = torch.autograd.grad(loss, weights)
    with torch.no_grad():
        weights -= step * gradient
theory = flow.loss(torch.tensor(at))
for time, one, other in zip(at, simulated, theory.tolist(), strict=True):
    print(f"t = {time:7.1f}   descent {one:.6f}   closed form {other:.6f}")

# %%
Plot(
    "log₁₀ of time",
    "loss",
    (
        Curve("closed form", tuple(times.log10().tolist()), tuple(predicted.tolist()), line=True),
        Curve("gradient descent", tuple(torch.tensor(at[1:]).log10().tolist()), tuple(simulated[1:])),
    ),
)
