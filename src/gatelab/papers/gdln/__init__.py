"""gdln: notes on localisation, and on gated deep linear networks (GDLN) as a model of it.

Theorems (``gatelab theorems gdln``):

- ``theorems``: Sections 1 to 3, corrected; ``theorems_time``: Sections 2.3 and 5, and deeper networks;
- ``theorems_printed``: where the printed formulas fail, and by how much;
- ``problem``: the small problems they share; ``gate_objective``: Eqs 16 and 18; ``simulation``: the flow step by step.

Experiments (``gatelab run gdln-…``):

- ``localisation``: Section 1, which data and activations localise; ``fields`` trains its networks;
- ``sign_flipping``, ``predict_location``, ``evolving_gates``: Sections 2.1 to 2.3; ``training`` trains their networks;
- ``best_gates``: Section 3.3, which gates are best; ``theory``: Section 4, theory over simulation;
- ``samples``: the samples that their claims compare.
"""

_FLOW = "gatelab.dynamics.GatedLinearFlow"
_MODES = "gatelab.dynamics.linear_flow.LinearFlow"
_OBJECTIVE = "gatelab.papers.gdln.gate_objective"

# Equation or claim of the notes → the gatelab name that computes it, or the theorem or experiment that measures it.
EQUATIONS: dict[str, str] = {
    "Eq. 1": "gatelab.models.MeanReadoutNetwork",
    "Section 1, localisation": "gdln-localisation",
    "Section 1, NLGP": "gdln-nlgp",
    "Section 1, single pulse": "gatelab.data.SinglePulse",
    "Eq. 2": "gatelab.models.MeanReadoutNetwork.frozen_gates",
    "Section 2, ReLU is gate times linear": "gdln-2",
    "Section 2.1": "gdln-sign-flipping",
    "Section 2.2": "gdln-predict-location",
    "Section 2.3": "gdln-evolving-gates",
    "Eq. 3": "gatelab.models.GatedDeepLinearNetwork",
    "Eq. 4": "gatelab.models.GatedDeepLinearNetwork.weights",
    "Eq. 5": _FLOW,
    "Eq. 6": "gatelab.dynamics.GatedMoments.input_output",
    "Eq. 7": "gatelab.dynamics.GatedMoments.input_input",
    "Section 3.2": "gdln-8",
    "Section 3.2, descent": "gdln-descent",
    "Eq. 8": _FLOW,
    "Eq. 9": f"{_MODES}.at",
    "Eq. 10": f"{_FLOW}.weights",
    "Eq. 11": f"{_FLOW}.weights",
    "Section 3.3, closed form": "gdln-11",
    "Section 3.3, w(∞)": f"{_FLOW}.limit",
    "Eq. 12": "gatelab.dynamics.moments.gated_inputs",
    "Section 3.3, least squares": "gdln-limit",
    **{f"Eq. {number}": "gatelab.dynamics.minimum_loss" for number in (13, 14, 15)},
    "Eq. 16": f"{_OBJECTIVE}.minimum_loss_balanced",
    "Section 3.3, least loss": "gdln-16",
    "Section 3.3, which gates": "gdln-best-gates",
    "Eq. 17": "gatelab.models.node_gates.NodeGates.opened",
    "Eq. 18": f"{_OBJECTIVE}.objective",
    "Section 3.4": "gdln-3.4",
    "Eq. 19": _FLOW,
    "Eq. 20": _MODES,
    "Eq. 21": f"{_MODES}.at",
    **{f"Eq. {number}": f"{_FLOW}.weights" for number in (22, 23, 24, 25)},
    "Eq. 26": f"{_FLOW}.limit",
    "Section 3.5": "gdln-3.5",
    **{f"Eq. {number}": _FLOW for number in (27, 28, 29, 30)},
    "Eq. 31": f"{_FLOW}.weights",
    "Eq. 32": f"{_FLOW}.weights",
    "Section 4.1": "gdln-theory",
    "Section 4.2": "gdln-theory",
    "Section 4.3": "gdln-theory",
    "Section 5, gates vary in time": "gdln-piecewise",
    "Section 5, one basis": "gdln-circulant",
    "Beyond the notes": "gdln-race",
    **{f"Eq. {number} as printed": f"gdln-{number}-printed" for number in (8, 9, 11, 18, 26, 31)},
}
