"""Which gates a function looks at: those that the network computes, or hard ones."""

from typing import Literal, get_args

from gatelab.errors import InputError

GateChoice = Literal["network", "hard"]


def is_hard(gates: GateChoice) -> bool:
    """Whether hard gates are wanted; refuse what is no choice."""
    if gates not in get_args(GateChoice):
        raise InputError(
            f'gates is {gates!r}; use "network" for the gates that the network computes, or "hard" for bits'
        )
    return gates == "hard"
