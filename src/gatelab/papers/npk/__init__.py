"""Neural Path Features and Neural Path Kernel (npk).

Theorems (``gatelab theorems npk``):

- ``theorems``: Sections 1 to 4 and Definition C.2: paths, kernels, dynamics of the error;
- ``theorems_expectations``: Sections 5, C, D, E: kernels over random values and random gates;
- ``theorems_bundles``: the same for convolutional and residual networks, beyond the paper.

Experiments (``gatelab run npk-…``):

- ``table2``: Table 2, accuracy with random, learnt, decoupled and ReLU gates;
- ``figure3_stages``, ``figure3_dynamics``, ``figure3_kernels``: Figure 3, left, middle and right;
- ``memorisation``: Figures 5 and 6; ``theorem51``: Theorem 5.1 as a convergence plot;
- ``kernel_regression``, ``kernel_at_scale``: kernel machines with the path kernel, beyond the paper.
"""

_DGN = "gatelab.models.DeepGatedNetwork"
_RATE = "gatelab.lab.measure.ErrorFlow"

# Where each item of the paper is computed: a dotted name, or the id of the theorem or experiment that measures it.
EQUATIONS: dict[str, str] = {
    "Section 1.1, NTK": "gatelab.kernels.neural_tangent_kernel",
    "Proposition 1.1": "npk-1.1",
    "Eq. 1": "npk-2.1",
    "Table 1": "gatelab.models.mlp",
    "Definition 2.1, activity": "gatelab.paths.features.path_activity",
    "Definition 2.1, NPF": "gatelab.paths.neural_path_features",
    "Definition 2.1, NPV": "gatelab.paths.neural_path_values",
    "Proposition 2.1": "npk-2.1",
    "Figure 1": "gatelab.paths.features.path_activity",
    "Definition 2.2": "gatelab.kernels.overlap_kernel",
    "Lemma 2.1": "npk-L2.1",
    "Lemma 2.1, NPK": "gatelab.kernels.neural_path_kernel",
    "Definition 3.1": "gatelab.paths.features.path_gradients",
    "Definition 3.2": "gatelab.kernels.value_tangent_kernel",
    "Definition 3.3": "gatelab.dynamics.GateTracker.switching_instants",
    "Proposition 3.1": "npk-3.1",
    "Proposition 3.2": "npk-3.2",
    "Proposition 3.3": "npk-3.3",
    "Figure 2": _DGN,
    "Proposition 4.1": "npk-4.1",
    "Definition 5.1": "study",
    "Assumption 5.1": "gatelab.models.init.bernoulli_",
    "Theorem 5.1": "npk-5.1",
    "Theorem 5.1, as a plot": "npk-theorem51",
    "Table 2": "npk-table2",
    "Figure 3, left": "npk-figure3-stages",
    "Figure 3, middle": "npk-figure3-dynamics",
    "Figure 3, right": "npk-figure3-kernels",
    "Section 6, ν": "gatelab.kernels.label_complexity",
    "Eq. 2": "gatelab.kernels.infinite_width_ntk",
    "Appendix B, soft gate": "gatelab.gates.SoftGate",
    "Definition C.1": _DGN,
    "Table 3": _DGN,
    "Figure 4": _DGN,
    "Definition C.2": "npk-C.2",
    "Corollary C.1": "npk-C.1",
    "Appendix C, as a sketch": "gatelab.kernels.path_features",
    "Eq. 3": f"{_RATE}.velocity",
    "Eq. 4": f"{_RATE}.velocity",
    "Eq. 5": f"{_RATE}.error_rate",
    "Eq. 6": "npk-1.1",
    **{f"Eq. {number}": "npk-2.1" for number in (7, 8, 9)},
    "Eq. 10": "npk-L2.1",
    "Lemma D.1": "npk-LD.1",
    "Theorem D.1": "npk-5.1",
    **{f"Eq. {number}": "npk-5.1" for number in (11, 12, 13)},
    "Definition E.1": "gatelab.models.MemorisationNetwork",
    "Table 4": "gatelab.models.MemorisationNetwork",
    "Eq. 14": "npk-1.1",
    "Eq. 15": "npk-E",
    "Figure 5": "npk-figure5",
    "Figure 6": "npk-figure6",
}
