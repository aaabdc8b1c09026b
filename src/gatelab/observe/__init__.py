"""Run a user's model without leaving a trace.

Code that inspects a model uses :func:`examples` to check the input, :func:`observable` to check the state of the
model, :func:`stand_in` to get a copy that it may change, and :func:`undisturbed` to run that copy.
"""

from gatelab.observe.chance import MAY_DRAW, RANDOM, OwnChance, refuse_generator, torch_state_kept
from gatelab.observe.checks import batches, examples, examples_for, observable, refuse_unless_finite
from gatelab.observe.copying import stand_in
from gatelab.observe.running import plain_surroundings, undisturbed

__all__ = [
    "MAY_DRAW",
    "RANDOM",
    "OwnChance",
    "batches",
    "examples",
    "examples_for",
    "observable",
    "plain_surroundings",
    "refuse_generator",
    "refuse_unless_finite",
    "stand_in",
    "torch_state_kept",
    "undisturbed",
]
