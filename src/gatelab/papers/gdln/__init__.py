"""gdln: notes on localisation, and on gated deep linear networks (GDLN) as a model of it.

Their main data are the nonlinear Gaussian process (NLGP).

Theorems (``gatelab theorems gdln``):

- ``theorems``: all equations, corrected; ``theorems_structure``: gates with a structure, and deeper networks;
- ``theorems_population``: one unit on symmetric data; ``theorems_gates``: sliding, best gates, races over graphs;
- ``theorems_printed``: where the printed formulas fail, and by how much;
- ``problem``: the small problems they share; ``gate_objective``: Eqs 16 and 18; ``simulation``: the flow step by step.

Experiments (``gatelab run gdln-…``):

- ``localisation``: Section 1, which data and activations localise; ``phase_diagram``: predicted without training;
  ``pulse_map``: pulses by their widths; ``many_units``: Gaussian clones, tiling, a trained second layer;
- ``sign_flipping``, ``predictions``: Section 2.1; Sections 2.2 and 2.3; ``training`` trains the networks of both;
- ``best_gates``: Section 3.3, which half-spaces are best; ``optimal_gates``: which among all gates;
- ``theory``: Section 4, theory over simulation; ``shared_pathways``: races over graphs.
"""

# Home (a dotted name, or the id of a theorem or experiment) → the items of the paper that it computes or measures.
_ITEMS = {
    "gatelab.models.MeanReadoutNetwork": "Eq. 1",
    "gdln-localisation": "Section 1, localisation",
    "gdln-phase-diagram": "Section 1, phase diagram",
    "gdln-pulse-map": "Section 1, pulses of any width",
    "gdln-gaussian-clone": "Section 1, many units and Gaussian clones",
    "gdln-nlgp": "Section 1, NLGP",
    "gatelab.data.SinglePulse": "Section 1, single pulse",
    "gatelab.models.MeanReadoutNetwork.frozen_gates": "Eq. 2",
    "gdln-2": "Section 2, ReLU is gate times linear",
    "gdln-sign-flipping": "Section 2.1",
    "gdln-predict-location": "Section 2.2",
    "gdln-evolving-gates": "Section 2.3",
    "gatelab.models.GatedDeepLinearNetwork": "Eq. 3",
    "gatelab.models.GatedDeepLinearNetwork.weights": "Eq. 4",
    "gatelab.dynamics.GatedLinearFlow": "Eq. 5; Eq. 8; Eq. 19; Eq. 27; Eq. 28; Eq. 29; Eq. 30",
    "gatelab.dynamics.GatedMoments.input_output": "Eq. 6",
    "gatelab.dynamics.GatedMoments.input_input": "Eq. 7",
    "gdln-8": "Section 3.2",
    "gdln-descent": "Section 3.2, descent",
    "gatelab.dynamics.linear_flow.LinearFlow.at": "Eq. 9; Eq. 21",
    "gatelab.dynamics.GatedLinearFlow.weights": "Eq. 10; Eq. 11; Eq. 22; Eq. 23; Eq. 24; Eq. 25; Eq. 31; Eq. 32",
    "gdln-11": "Section 3.3, closed form",
    "gatelab.dynamics.GatedLinearFlow.limit": "Section 3.3, w(∞); Eq. 26",
    "gatelab.dynamics.moments.gated_inputs": "Eq. 12",
    "gdln-limit": "Section 3.3, least squares",
    "gatelab.dynamics.minimum_loss": "Eq. 13; Eq. 14; Eq. 15",
    "gatelab.papers.gdln.gate_objective.minimum_loss_balanced": "Eq. 16",
    "gdln-16": "Section 3.3, least loss",
    "gdln-best-gates": "Section 3.3, which half-spaces",
    "gdln-optimal-gates": "Section 3.3, which gates",
    "gdln-3.3": "Section 3.3, best gates proved",
    "gatelab.models.node_gates.NodeGates.opened": "Eq. 17",
    "gatelab.papers.gdln.gate_objective.objective": "Eq. 18",
    "gdln-3.4": "Section 3.4",
    "gatelab.dynamics.linear_flow.LinearFlow": "Eq. 20",
    "gdln-3.5": "Section 3.5",
    "gdln-theory": "Section 4.1; Section 4.2; Section 4.3",
    "gdln-piecewise": "Section 5, gates vary in time",
    "gdln-circulant": "Section 5, translation-invariant gates",
    "gdln-one-basis": "Section 5, one basis",
    "gdln-gaussian-moments": "Section 3.2, Gaussian data",
    "gdln-population": "Section 2.3, population",
    "gdln-variational": "Section 1, why fields are local",
    "gdln-filippov": "Section 2.3, sliding",
    "gdln-outputs": "Section 3.2, several outputs",
    "gdln-shared-race": "Beyond the notes, graphs",
    "gdln-race": "Beyond the notes",
    "gdln-shared-pathways": "Beyond the notes, shared pathways",
    "gdln-8-printed": "Eq. 8 as printed",
    "gdln-9-printed": "Eq. 9 as printed",
    "gdln-11-printed": "Eq. 11 as printed",
    "gdln-18-printed": "Eq. 18 as printed",
    "gdln-26-printed": "Eq. 26 as printed",
    "gdln-31-printed": "Eq. 31 as printed",
}
EQUATIONS: dict[str, str] = {item: home for home, items in _ITEMS.items() for item in items.split("; ")}
"""Item of the paper → the dotted name that computes it, or the id of the theorem or experiment that measures it."""
