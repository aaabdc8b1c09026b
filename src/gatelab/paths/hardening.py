"""What hard gates would cost a network whose gates are soft."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.network.capture import refuse_obstacles
from gatelab.network.certificate import certify
from gatelab.network.network import Network, read
from gatelab.observe import batches, examples

RUN_AT_A_TIME = 1024


@dataclass(frozen=True)
class HardeningGap:
    """A network compared with itself under hard gates, on the same examples.

    Attributes:
        soft_loss: the mean loss with the network's own gates; None without labels.
        hard_loss: the same with hard gates.
        soft_accuracy: the share of right classes with its own gates; None unless labels are classes.
        hard_accuracy: the same with hard gates.
        agreement: 1 − mean (ŷ − ŷ_hard)² / variance of ŷ: 1 if hard gates change nothing.
        same_class: the share of examples whose largest output (the sign of a single one) is the same.
        soft_gates: the number of layers whose gates are numbers.
    """

    soft_loss: float | None
    hard_loss: float | None
    soft_accuracy: float | None
    hard_accuracy: float | None
    agreement: float
    same_class: float
    soft_gates: int

    def __str__(self) -> str:
        if not self.soft_gates:
            return "gates are bits: there is nothing to harden"
        parts = [f"{self.soft_gates} layers of soft gates"]
        if self.soft_loss is not None:
            parts.append(f"loss {self.soft_loss:.4g}, hard {self.hard_loss:.4g}")
        if self.soft_accuracy is not None:
            parts.append(f"accuracy {self.soft_accuracy:.2%}, hard {self.hard_accuracy:.2%}")
        return "; ".join([*parts, f"outputs agree to {self.agreement:.3g}, classes in {self.same_class:.2%}"])


@torch.no_grad()
def hardening_gap(model: nn.Module, x: Float[Tensor, "n ..."], y: Tensor | None = None) -> HardeningGap:
    """Compare a network with the one whose gates are hard, with the same weights.

    Half-spaces, regions and active paths belong to the hard network. Where the gap is large, they say little about
    the network that was trained. A hard gate is the limit of a steep soft gate: 1 where its pre-activation is
    positive and 0, or its slope, elsewhere. A factor, such as in squeeze-and-excitation, jumps from one end of its
    range to the other at the middle: a sigmoid from 0 to 1, a tanh from −1 to 1. An activation as a factor, as
    in SwiGLU, has no upper end and becomes the bit of its sign. Every soft gate is replaced, including those of a
    feature network, so a SiLU network becomes the ReLU network with the same weights.

    Args:
        model: any network whose gates :func:`gatelab.capture_gates` finds.
        x: examples.
        y: classes (integers), for the cross-entropy and the accuracy, or numbers of the shape of the outputs, for the
            mean squared error; None compares only the outputs.

    Returns:
        Losses, accuracies and the agreement of the outputs.

    Raises:
        InputError: y does not fit the outputs.
        UnsupportedModelError: the network is not a sum over gated paths.

    Example:
        >>> from gatelab import Regime, to_dgn
        >>> dgn = to_dgn(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)), Regime.DNPFL, beta=1e6)
        >>> round(hardening_gap(dgn, torch.randn(50, 2)).agreement, 3)
        1.0
    """
    network = read(model, x)
    certify(network)
    refuse_obstacles(network)  # otherwise a tanh, which is not a gate, would look like nothing to harden
    x = examples(x, network.model)
    rows = list(batches(len(x), RUN_AT_A_TIME))
    soft, hard = (torch.cat([_outputs(network, x[part], hard) for part in rows]) for hard in (False, True))
    targets = _targets(y, soft)
    spread = float((soft - soft.mean(0)).square().mean())
    apart = float((soft - hard).square().mean())
    classes = targets is not None and not targets.is_floating_point()
    return HardeningGap(
        soft_loss=_loss(soft, targets),
        hard_loss=_loss(hard, targets),
        soft_accuracy=float((_classes(soft) == targets).double().mean()) if classes else None,
        hard_accuracy=float((_classes(hard) == targets).double().mean()) if classes else None,
        agreement=1 - apart / spread if spread else float(apart == 0),
        same_class=float((_classes(soft) == _classes(hard)).double().mean()),
        soft_gates=sum(network.gating(node).gate is not None for node in network.gates),
    )


def _outputs(network: Network, x: Tensor, hard: bool) -> Float[Tensor, "n k"]:
    """What the network returns, with its own gates or with hard ones, in float64."""
    nodes = {name: node for node, name in network.gates.items()}

    def decide(name: str, q: Tensor) -> Tensor | None:
        gating = network.gating(nodes[name])
        return None if gating.gate is None else gating.hardened(q, network.slope(nodes[name]))

    (answer,) = network.interpreter.run(network.model, [network.answer], x.detach(), decide if hard else None)
    return answer.double().reshape(len(x), -1)


def _targets(y: Tensor | None, outputs: Float[Tensor, "n k"]) -> Tensor | None:
    if y is None:
        return None
    if not isinstance(y, Tensor) or not y.ndim or len(y) != len(outputs) or y.is_complex():
        raise InputError(f"y must be a tensor with one label for each of {len(outputs)} examples")
    if y.device != outputs.device or y.layout != torch.strided:
        raise InputError(
            f"y is a tensor of {y.layout} on {y.device}, the outputs are on {outputs.device}; give a dense tensor there"
        )
    if not y.is_floating_point():
        if y.ndim != 1 or outputs.shape[1] < 2 or int(y.min()) < 0 or int(y.max()) >= outputs.shape[1]:
            raise InputError(
                f"y holds classes of shape {tuple(y.shape)}, but the network has {outputs.shape[1]} outputs; give one "
                "class below that number for each example, or numbers for a squared error"
            )
        return y.long()
    if not bool(torch.isfinite(y).all()):
        raise InputError("y holds NaN or infinite values; clean the labels")
    if y.reshape(len(y), -1).shape != outputs.shape:
        raise InputError(f"y has shape {tuple(y.shape)}, the outputs {tuple(outputs.shape)}; give equal shapes")
    return y.reshape(outputs.shape).double()


def _loss(outputs: Float[Tensor, "n k"], targets: Tensor | None) -> float | None:
    if targets is None:
        return None
    if targets.is_floating_point():
        return float((outputs - targets).square().mean())
    return float(F.cross_entropy(outputs, targets))


def _classes(outputs: Float[Tensor, "n k"]) -> Tensor:
    return outputs.argmax(1) if outputs.shape[1] > 1 else (outputs[:, 0] > 0).long()
