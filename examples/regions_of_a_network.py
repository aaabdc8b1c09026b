# %% [markdown]
# # Regions of a network, in the plane and between three images
#
# Where no gate changes, a ReLU network is affine. gatelab computes these regions exactly, as polygons.

# %%
import torch
from torch import nn

import gatelab as gl
from gatelab.regions import Plane, linear_regions_2d
from gatelab.regions.drawing import draw_regions, region_picture

torch.manual_seed(0)
torch.set_num_threads(1)
angle = torch.linspace(0, 2 * torch.pi, 201)[:-1]
circle = torch.stack((angle.cos(), angle.sin()), 1)
target = torch.where(angle < torch.pi, torch.sin(angle), torch.sin(8 * angle))[:, None]

# %% [markdown]
# A network learns a target on the unit circle: slow on the upper half, fast on the lower half.

# %%
net = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
box = ((-1.5, 1.5), (-1.5, 1.5))
before = linear_regions_2d(net, bounds=box)
optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
for _step in range(1500):
    optimiser.zero_grad()
    nn.functional.mse_loss(net(circle), target).backward()
    optimiser.step()
error = nn.functional.mse_loss(net(circle), target).item()
after = linear_regions_2d(net, bounds=box)
print(f"{len(before)} regions at the start, {len(after)} after training (squared error {error:.4f})")


def open_gates(partition):
    """Count the open gates of each region."""
    return torch.cat([partition.gates[name] for name in partition.gates.layers], 1).sum(1)


draw_regions(
    [
        region_picture(before, open_gates(before), "open gates", "at the start"),
        region_picture(after, open_gates(after), "open gates", "after training"),
    ],
    columns=2,
)

# %% [markdown]
# ## Between three images
#
# The same on the plane through three digits, for a network that classifies them. The corners (0, 0), (1, 0) and (0, 1) are the images.

# %%
digits = gl.data.load("digits")
x, y = digits.inputs(digits.train_x).flatten(1), digits.train_y
classifier = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
optimiser = torch.optim.Adam(classifier.parameters(), lr=2e-3)
for _step in range(400):
    optimiser.zero_grad()
    nn.functional.cross_entropy(classifier(x), y).backward()
    optimiser.step()
corners = [x[y == label][0] for label in (0, 1, 7)]
partition = linear_regions_2d(classifier, plane=Plane.through(*corners), bounds=((-0.3, 1.3), (-0.3, 1.3)))
print(f"{len(partition)} regions between a 0, a 1 and a 7")
draw_regions(region_picture(partition, open_gates(partition), "open gates", "between a 0, a 1 and a 7"))
