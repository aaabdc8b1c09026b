"""Which gates a function uses: the gates that the network computes, or hard ones."""

from typing import Literal, get_args

from gatelab.errors import InputError

GateChoice = Literal["network", "hard"]


def is_hard(gates: GateChoice) -> bool:
    """Return whether hard gates were asked for; raise InputError for anything but "network" and "hard"."""
    if gates not in get_args(GateChoice):
        raise InputError(
            f'gates is {gates!r}; use "network" for the gates that the network computes, or "hard" for bits'
        )
    return gates == "hard"
