"""The choices that every experiment of halfspace offers: how networks start, and what gates a DLGN has."""

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import nn

from gatelab import models
from gatelab.gates import HardGate, SoftGate, StraightThroughGate
from gatelab.gates.functions import GateFunction
from gatelab.lab.experiment import Config
from gatelab.models.init import Start

STARTS = {
    Start.PYTORCH: "PyTorch's default, ±1/√fan in, biases too",
    Start.GLOROT: "Glorot weights, zero biases",
    Start.KAIMING: "Kaiming weights, zero biases",
    Start.SIGNS: "weights ±√(2/fan in), zero biases (npk)",
}
PRINTED_START = "the paper does not print its start; the class means of its Figure 16(a) agree with PyTorch's default"


class DlgnOptions(Config):
    """How a DLGN (deep linearly gated network) and its ReLU companion are made; by default as in the paper."""

    start: Start = Start.PYTORCH
    beta: float = Field(default=10.0, gt=0)  # steepness of soft gates
    final_beta: float | None = Field(default=None, gt=0)  # their steepness in the last epoch
    straight_through: bool = False  # hard gates, with the slope of soft ones
    gate_bias: bool = True  # boundaries of half-spaces need not contain the origin
    piecewise_constant: bool = True  # DLGN-PWC (Section 2.3)
    shallow: bool = False  # DLGN-SF: every gate layer reads x

    def gate(self) -> GateFunction:
        """Return the gate function of gates that learn."""
        return StraightThroughGate(self.beta) if self.straight_through else SoftGate(self.beta)

    def relu_network(self, widths: Sequence[int], seed: int) -> nn.Sequential:
        """A ReLU network with biases."""
        generator = torch.Generator().manual_seed(seed)
        return models.mlp(widths, bias=True, start=self.start, generator=generator)

    def dlgn(self, widths: Sequence[int], seed: int) -> models.DeepLinearlyGatedNetwork:
        """A DLGN whose gates learn."""
        return models.DeepLinearlyGatedNetwork(
            widths,
            gate=self.gate(),
            piecewise_constant=self.piecewise_constant,
            shallow=self.shallow,
            gate_bias=self.gate_bias,
            start=self.start,
            generator=torch.Generator().manual_seed(seed),
        )

    def frozen(self, widths: Sequence[int], seed: int, *, hard: bool) -> models.DeepLinearlyGatedNetwork:
        """Make the DLGN of a seed with frozen gates: hard, or as soft as gates that learn."""
        net = self.dlgn(widths, seed)
        net.gate = HardGate() if hard else SoftGate(self.beta)
        for parameter in net.feature_parameters():
            parameter.requires_grad_(False)
        return net

    def name(self) -> str:
        """The name of the DLGN in the paper, or in later work."""
        return "DLGN" + ("-SF" if self.shallow else "") + ("-PWC" if self.piecewise_constant else "")

    def told(self) -> tuple[str, str]:
        """Return two notes for the report: on the gates, and on the start."""
        steepness = f"β = {self.beta:g}" + ("" if self.final_beta is None else f", which grows to {self.final_beta:g}")
        gates = "straight-through gates, with the slope of σ(βq)" if self.straight_through else "soft gates σ(βq)"
        offsets = "with biases" if self.gate_bias else "without biases"
        values = "constant values" if self.piecewise_constant else "values linear in x"
        reads = "; every gate layer reads x" if self.shallow else ""
        return (
            f"{self.name()}: {gates}, {steepness}, {offsets}, and {values}{reads}.",
            f"Start: {STARTS[self.start]}; {PRINTED_START}.",
        )
