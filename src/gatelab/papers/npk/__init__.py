"""Neural Path Features and Neural Path Kernel (npk).

Theorems (``gatelab theorems npk``):

- ``theorems``: Sections 1 to 3 and Definition C.2: paths, kernels, dynamics of the error;
- ``theorems_gated``: Section 4: weights, features, values and errors of deep gated networks over time;
- ``theorems_expectations``: Sections 5, C, D, E: kernels over random values and random gates;
- ``theorems_limits``: Theorem D.1's variance, Eq. 2 and fixed gates at infinite width, as printed and corrected;
- ``theorems_angles``: Eq. 2's angles in floating point;
- ``theorems_start``: dependent initialisation, deep linear networks, ν;
- ``theorems_bundles``: the same for convolutional and residual networks, beyond the paper: bundles listed, kernels.

Experiments (``gatelab run npk-…``):

- ``table2``: Table 2, accuracy with random, learnt, decoupled and ReLU gates;
- ``figure3``: Figure 3, gates at stages of training, ν and tangent kernels while networks learn;
- ``memorisation``: Figures 5 and 6, with the best depth predicted by ``memorisation_law``;
- ``theorem51``: Theorem 5.1 as a convergence plot;
- ``cntk``: Section 6's FRNPF < CNTK < FLNPF (fixed random neural path features, convolutional NTK, fixed learnt
  neural path features), on one data subset;
- ``kernel_regression``, ``kernel_at_scale``: kernel machines with the path kernel, beyond the paper.
"""

# Home (a dotted name, or the id of a theorem or experiment) → the items of the paper that it computes or measures.
_ITEMS = {
    "gatelab.kernels.neural_tangent_kernel": "Section 1.1, NTK",
    "npk-1.1": "Proposition 1.1; Eq. 6; Eq. 14",
    "npk-2.1": "Eq. 1; Proposition 2.1; Eq. 7; Eq. 8; Eq. 9",
    "gatelab.models.mlp": "Table 1",
    "gatelab.paths.features.path_activity": "Definition 2.1, activity; Figure 1",
    "gatelab.paths.neural_path_features": "Definition 2.1, NPF",
    "gatelab.paths.neural_path_values": "Definition 2.1, NPV",
    "gatelab.kernels.overlap_kernel": "Definition 2.2",
    "npk-L2.1": "Lemma 2.1; Eq. 10",
    "gatelab.kernels.neural_path_kernel": "Lemma 2.1, NPK",
    "gatelab.paths.features.path_gradients": "Definition 3.1",
    "gatelab.kernels.value_tangent_kernel": "Definition 3.2",
    "gatelab.dynamics.GateTracker.switching_instants": "Definition 3.3",
    "npk-3.1": "Proposition 3.1",
    "npk-3.2": "Proposition 3.2",
    "npk-3.3": "Proposition 3.3",
    "gatelab.models.DeepGatedNetwork": "Figure 2; Definition C.1; Table 3; Figure 4",
    "npk-4.1": "Proposition 4.1",
    "study": "Definition 5.1",
    "gatelab.models.init.bernoulli_": "Assumption 5.1",
    "npk-5.1": "Theorem 5.1; Theorem D.1; Eq. 11; Eq. 12; Eq. 13",
    "npk-theorem51": "Theorem 5.1, as a plot",
    "npk-D.1": "Theorem D.1, variance",
    "npk-table2": "Table 2",
    "npk-cntk": "Section 6, CNTK",
    "npk-figure3-stages": "Figure 3, left",
    "npk-figure3-dynamics": "Figure 3, middle",
    "npk-figure3-kernels": "Figure 3, right",
    "gatelab.kernels.label_complexity": "Section 6, ν",
    "gatelab.kernels.infinite_width_ntk": "Eq. 2",
    "gatelab.gates.SoftGate": "Appendix B, soft gate",
    "npk-C.2": "Definition C.2",
    "npk-C.1": "Corollary C.1",
    "gatelab.kernels.path_features": "Appendix C, as a sketch",
    "gatelab.lab.measure.ErrorFlow.velocity": "Eq. 3; Eq. 4",
    "gatelab.lab.measure.ErrorFlow.error_rate": "Eq. 5",
    "npk-LD.1": "Lemma D.1",
    "gatelab.models.MemorisationNetwork": "Definition E.1; Table 4",
    "npk-E": "Eq. 15",
    "npk-figure5": "Figure 5",
    "npk-figure6": "Figure 6",
}
EQUATIONS: dict[str, str] = {item: home for home, items in _ITEMS.items() for item in items.split("; ")}
"""Item of the paper → the dotted name that computes it, or the id of the theorem or experiment that measures it."""
