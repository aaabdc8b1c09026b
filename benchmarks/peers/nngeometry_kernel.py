"""The peer's process: nngeometry's Gram matrix of the network of the problem, on the project's torch."""

import numpy as np
import torch
from nngeometry.gram import GramMatrix
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.serve import Work, pin_threads, serve


def prepare(way: str, problem: dict[str, np.ndarray]) -> tuple[Work, float]:
    """All examples in one batch; nothing to compile. ``way`` is of no meaning here."""
    del way
    x = torch.from_numpy(problem.pop("x"))
    names = sorted({name.rsplit(".", 1)[0] for name in problem}, key=int)
    layers: list[nn.Module] = []
    for name in names:
        weight = torch.from_numpy(problem[f"{name}.weight"])
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": torch.from_numpy(problem[f"{name}.bias"])})
        layers += [layer, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    loader = DataLoader(TensorDataset(x), batch_size=len(x))

    def answer(batch: Tensor) -> Tensor:
        return model(batch)

    def work() -> np.ndarray:
        gram = GramMatrix(model=model, loader=loader, function=answer).to_torch()
        return gram.detach()[0, :, 0].numpy()

    return work, 0.0


if __name__ == "__main__":
    torch.set_num_threads(pin_threads())
    serve(prepare)
