# %% [markdown]
# # What freezing gates costs
#
# The path paper's experiment by hand, on the 8 × 8 digits: train only the *values* of a network, on gates that are random, learnt
# by another network, or learning beside the values.

# %%
import torch
from torch import nn

import gatelab as gl
from gatelab.figures import Curve, Plot

torch.set_num_threads(1)
digits = gl.data.load("digits")
x, y = digits.inputs(digits.train_x).flatten(1), digits.train_y
test_x, test_y = digits.inputs(digits.test_x).flatten(1), digits.test_y


def fresh(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))


def train(net, parameters, seed, epochs=15):
    """Train, and return the test accuracy after the last epoch in percent."""
    optimiser = torch.optim.Adam(parameters, lr=1e-3)
    order = torch.Generator().manual_seed(seed)
    for _epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=order).split(32):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
    with torch.no_grad():
        return 100 * float((net(test_x).argmax(1) == test_y).double().mean())


# %% [markdown]
# Four ways to get gates, three seeds each. `gates_from=` names the network whose gates are used; values always start afresh.

# %%
accuracies: dict[str, list[float]] = {
    "random gates": [],
    "learnt gates": [],
    "gates learn beside": [],
    "ReLU network": [],
}
for seed in range(3):
    relu = fresh(seed)
    accuracies["ReLU network"].append(train(relu, relu.parameters(), seed))
    twins = {
        "random gates": gl.to_dgn(fresh(seed + 100), gl.Regime.FRNPF_II, gates_from=fresh(seed + 200)),
        "learnt gates": gl.to_dgn(fresh(seed + 100), gl.Regime.FLNPF, gates_from=relu),
        "gates learn beside": gl.to_dgn(fresh(seed + 100), gl.Regime.DNPFL, gates_from=fresh(seed + 200)),
    }
    for name, twin in twins.items():
        learnt = twin.parameters() if name == "gates learn beside" else twin.value_parameters()
        accuracies[name].append(train(twin, learnt, seed))
for name, values in accuracies.items():
    print(f"{name:<20} {sum(values) / 3:5.1f} %   " + ", ".join(f"{value:.1f}" for value in values))

# %%
Plot(
    "",
    "test accuracy, %: one dot for each seed",
    tuple(Curve("", (float(place),) * 3, tuple(values)) for place, values in enumerate(accuracies.values())),
    ticks=tuple(accuracies),
)

# %% [markdown]
# Three seeds on an easy task are a sketch of the experiment. [Table 2](../docs/results/npk-table2.md) has it on MNIST with verdicts, and
# `gatelab study net.py:Net` asks the question of your network.
