# %% [markdown]
# # Your CNN in five minutes
#
# Any `nn.Module` will do. Here: a small CNN with batch-norm, max-pooling and a skip connection, on the 8 × 8 digits that come with
# scikit-learn. Replace `Net` and the data by your own.

# %%
import torch
from torch import nn

import gatelab as gl

torch.manual_seed(0)
torch.set_num_threads(1)  # fastest for networks this small


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        h = torch.relu(self.first(x))
        h = h + torch.relu(self.norm(self.second(h)))
        return self.head(nn.functional.max_pool2d(h, 2).flatten(1))


digits = gl.data.load("digits")
train_x, train_y = digits.inputs(digits.train_x), digits.train_y
test_x, test_y = digits.inputs(digits.test_x), digits.test_y

# %% [markdown]
# Train it as you always do. A `GateTracker` looks at fixed probes after each epoch, and leaves your model as it was.

# %%
net = Net()
probes = test_x[:60]
tracker = gl.GateTracker(net, probes, test_y[:60])
optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
for epoch in range(10):
    net.train()
    for rows in torch.randperm(len(train_x)).split(32):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(train_x[rows]), train_y[rows]).backward()
        optimiser.step()
    net.eval()
    tracker.record(epoch)
accuracy = (net(test_x).argmax(1) == test_y).double().mean()
print(f"test accuracy {accuracy:.1%}")

# %%
tracker.plot()

# %% [markdown]
# ## What gatelab sees
#
# `read` runs the model on two examples and lists its operations with their roles.

# %%
print(gl.read(net, probes))

# %%
gates = gl.capture_gates(net, probes)
print(gates)

# %% [markdown]
# ## The paths that matter
#
# The output is a sum over paths, from a pixel or from a bias to a class. These paths from a pixel contribute most to the score of the
# true class; c is a channel, followed by a position.

# %%
image, label = test_x[0], int(test_y[0])
strongest = gl.top_paths(net, image, k=300, output=label)
for path in [path for path in strongest if path.start == 0][:5]:
    print(path)
print(f"of {gl.paths.count_paths(net, image):,} paths in all")

# %% [markdown]
# ## How alike are two images to the network?
#
# The neural path kernel H compares the paths that are open for two inputs. Images of one class share more of them than images of
# two classes:

# %%
H = gl.neural_path_kernel(net, probes).detach()
cosine = H / (H.diag()[:, None] * H.diag()).sqrt()
same = test_y[:60, None] == test_y[:60]
other = ~same
same.fill_diagonal_(False)
print(f"mean cosine within a class {cosine[same].mean():.2f}, between classes {cosine[other].mean():.2f}")

# %% [markdown]
# ## Gates and values, pulled apart
#
# The twin has the trained network's gates, fixed, and fresh random values. How far do values come on these gates?

# %%
twin = gl.to_dgn(net, gl.Regime.FLNPF, generator=torch.Generator().manual_seed(1))
optimiser = torch.optim.Adam(twin.value_parameters(), lr=2e-3)
for _epoch in range(10):
    twin.train()
    for rows in torch.randperm(len(train_x)).split(32):
        optimiser.zero_grad()
        nn.functional.cross_entropy(twin(train_x[rows]), train_y[rows]).backward()
        optimiser.step()
twin.eval()
with torch.no_grad():
    relearnt = (twin(test_x).argmax(1) == test_y).double().mean()
print(f"the network {accuracy:.1%}, fresh values on its gates {relearnt:.1%}")

# %% [markdown]
# One run is an anecdote. `gatelab study` does this with controls, several seeds and intervals.
