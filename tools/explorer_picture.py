"""Train a small CNN on MNIST, write its explorer page, and take the pictures of docs/explore.md.

``OMP_NUM_THREADS=1 python -m tools.explorer_picture`` needs MNIST, chromium and Playwright; the page must have been
built (``make web``). It also prints what the docs say about the network, computed by plain PyTorch.
"""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from playwright.sync_api import sync_playwright
from torch import nn

import gatelab as gl

ROOT = Path(__file__).parents[1]
PICTURES = {"#paths-panel": ROOT / "docs" / "explore-paths.png", "#gates-panel": ROOT / "docs" / "explore-gates.png"}
EPOCHS, BATCH = 2, 64


def trained(data: gl.data.Dataset) -> nn.Sequential:
    """Return conv-pool-conv-pool-dense after two epochs of Adam, seed 0."""
    torch.manual_seed(0)
    first = (nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    net = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(16 * 7 * 7, 10))
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(data.train_x)).split(BATCH):
            loss = nn.functional.cross_entropy(net(data.inputs(data.train_x[rows])), data.train_y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return net.eval()


@torch.no_grad()
def check(net: nn.Sequential, data: gl.data.Dataset) -> str:
    """Return what the page shows of the second layer's channels, measured on all test images without gatelab."""
    opened, largest = torch.zeros(16, dtype=torch.int64), torch.full((16,), -torch.inf)
    for rows in torch.arange(len(data.test_x)).split(500):
        before = net[:4](data.inputs(data.test_x[rows]))
        opened += (before > 0).sum((0, 2, 3))
        largest = torch.maximum(largest, before.amax((0, 2, 3)))
    dead = (opened == 0).nonzero().flatten().tolist()
    answers = [net(data.inputs(part)) for part in data.test_x.split(500)]
    convolution = net[3]
    assert isinstance(convolution, nn.Conv2d)
    assert convolution.bias is not None
    kept = convolution.weight.clone(), convolution.bias.clone()
    convolution.weight[dead], convolution.bias[dead] = 0.0, 0.0
    changed = max(
        float((before - net(data.inputs(part))).abs().max())
        for before, part in zip(answers, data.test_x.split(500), strict=True)
    )
    convolution.weight.copy_(kept[0])
    convolution.bias.copy_(kept[1])
    right = int((torch.cat(answers).argmax(1) == data.test_y).sum())
    nearest = float(largest[dead].max()) if dead else float("nan")
    return (
        f"{right} of {len(data.test_y)} right; channels never open: {dead}, largest pre-activation {nearest:.4g}; "
        f"without them outputs change by at most {changed:g}"
    )


def main() -> None:
    """Write the pictures."""
    data = gl.data.load("mnist")
    net = trained(data)
    print(check(net, data))  # noqa: T201
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "page.html"
        print(gl.explore(net, data, page_file, examples=40, planes=1, force=True))  # noqa: T201
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 900})
        page.goto(page_file.as_uri())
        page.locator("#card-A canvas").wait_for()
        page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        for panel, picture in PICTURES.items():
            page.locator(panel).screenshot(path=picture)
            print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size / 1024:.0f} KB")  # noqa: T201
        browser.close()


if __name__ == "__main__":
    main()
