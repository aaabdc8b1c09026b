"""Half-Space Feature Learning in Neural Networks (halfspace), one file for each table or figure.

- ``theorems``: Theorems 1 and 2, and the claims about regions in Figure 1 and Sections 2.2 and 3.1
- ``figure1``: Figure 1, active regions of ReLU paths
- ``circle``: Figures 2–6, 9, 10, feature learning on the circle; its tables and claims are in ``circle_findings``, its
  pictures in ``circle_figures``
- ``fashion``: Figures 7 and 11–16, simple and complex classes of Fashion-MNIST
- ``table1``, ``table2``: Tables 1 and 2, accuracy on CIFAR; ``images`` holds what they share
"""

_MIXTURE = "gatelab.paths.mixture_of_experts"
_GATING = "gatelab.paths.experts.MixtureOfExperts.gating"
_EXPERT = "gatelab.paths.experts.MixtureOfExperts.expert"
_DLGN = "gatelab.models.DeepLinearlyGatedNetwork"

# Where each numbered item of the paper is computed: a dotted name, or the id of an experiment or theorem.
EQUATIONS: dict[str, str] = {
    "Eq. 1": _MIXTURE,
    "Eq. 2": _GATING,
    "Eq. 3": _EXPERT,
    "Eq. 4": _GATING,
    "Eq. 5": _EXPERT,
    "Eq. 6": _DLGN,
    "Eq. 7": "halfspace-2",
    "Eq. 8": _MIXTURE,
    "Eq. 9": "gatelab.models.mlp",
    "Eq. 10": "halfspace-1",
    "Eq. 11": _MIXTURE,
    "Theorem 1": "halfspace-1",
    "Theorem 2": "halfspace-2",
    "Lemma 3": _MIXTURE,  # for the network up to layer ℓ
    "Lemma 4": _MIXTURE,
    "Section 2.2, A_π is convex": "halfspace-2.2",
    "Section 2.2, half-spaces": "gatelab.regions.half_spaces",
    "Section 2.3, DLGN-PWC": _DLGN,
    "Section 3.1, A(x)": "gatelab.regions.count_active_paths",
    "Section 3.1, A_π": "gatelab.regions.active_region",
    "Section 3.1, A_b": "gatelab.regions.activation_region",
    "Section 3.1, path regions against pattern regions": "halfspace-3.1-regions",
    "Section 3.2, overlap kernel": "gatelab.kernels.overlap_kernel",
    "Section 3.2, values for fixed gates": "gatelab.kernels.refit_values",
    "Section 5, modified Fashion-MNIST": "gatelab.data.modified_fashion",
    "Figure 1": "gatelab.papers.halfspace.figure1.figure1",
    "Figure 1, left": "halfspace-fig1a",
    "Figure 1, right": "halfspace-fig1b",
    "Figure 8": _DLGN,
    "Table 1": "halfspace-table1",
    "Table 2": "halfspace-table2",
    **{f"Figure {number}": "halfspace-circle" for number in (2, 3, 4, 5, 6, 9, 10)},
    **{f"Figure {number}": "halfspace-fashion" for number in (7, 11, 12, 13, 14, 15, 16)},
}
