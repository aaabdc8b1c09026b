"""The control's gates are random by construction; this says how they were drawn, and checks it."""

from typing import Any

from torch import Tensor, nn

from gatelab.errors import InputError
from gatelab.gates import GatePattern
from gatelab.lab.study.source import NetworkSource
from gatelab.network import capture_gates

_LEAST = 0.01  # share of gates in which two networks must differ; independent ones differ in about half


def control_facts(source: NetworkSource, probes: Tensor, seed: int) -> dict[str, Any]:
    """Compare two draws of the control's gates with each other and with the network's own gates.

    Args:
        source: the networks.
        probes: examples on which gates are compared.
        seed: of the first draw.

    Returns:
        How the gates were drawn, as text, and the shares of gates that differ.

    Raises:
        InputError: two draws agree in nearly all gates, or a draw agrees with the network: that would be no control.
    """
    drawn, how = source.control_draw(seed)
    first, second = _gates(drawn, probes), _gates(source.control(seed + 1), probes)
    own = _gates(source.template, probes)
    apart, from_own = _different(first, second), _different(first, own)
    for what, share in (
        ("two draws of the control's gates", apart),
        ("the control's gates and the network's", from_own),
    ):
        if share < _LEAST:
            raise InputError(
                f"{what} differ in only {share:.2%} of all gates, so the control would be none. Give layers with "
                f"trainable weights a method reset_parameters() that draws them anew; these were drawn: {how}"
            )
    units = {name: first.layer(name).units for name in first.layers}
    return {"how": how, "apart": apart, "from_own": from_own, "gates": units}


def _gates(network: nn.Module, probes: Tensor) -> GatePattern:
    return capture_gates(network.eval(), probes)


def _different(first: GatePattern, second: GatePattern) -> float:
    """The share of gates in which two patterns differ."""
    count = first.n * sum(first.layer(name).units for name in first.layers)
    return sum(first.flips(second).values()) / count
