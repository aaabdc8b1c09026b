"""Half-Space Feature Learning in Neural Networks (halfspace), one file for each table or figure.

- ``theorems``: Theorems 1 and 2, and the claims about regions in Figure 1 and Sections 2.2 and 3.1
- ``figure1``: Figure 1, active regions of ReLU paths
- ``options``: what every experiment offers: the start of the networks, and the gates of a deep linearly gated network
  (DLGN)
- ``circle``: Figures 2–6, 9, 10, feature learning on the circle; its observations are in ``circle_runs``, tables in
  ``circle_findings``, claims in ``circle_claims``, pictures in ``circle_figures``
- ``initialisation``: the same from four starts; ``path_regions``: regions of ReLU paths while networks learn
- ``fashion``: Figures 7 and 11–16, simple and complex classes of Fashion-MNIST, with ``fashion_findings`` and
  ``fashion_figures``
- ``figure8``: Figure 8, the paths of a small DLGN
- ``tables``: Tables 1 and 2, accuracy on CIFAR, with ``tables_findings``; ``linearised``: Table 1's linear model
"""

# Home (a dotted name, or the id of a theorem or experiment) → the items of the paper that it computes or measures.
_ITEMS = {
    "gatelab.paths.mixture_of_experts": "Eq. 1; Eq. 8; Eq. 11; Lemma 3; Lemma 4",  # Lemma 3 up to layer ℓ
    "gatelab.paths.experts.MixtureOfExperts.gating": "Eq. 2; Eq. 4",
    "gatelab.paths.experts.MixtureOfExperts.expert": "Eq. 3; Eq. 5",
    "gatelab.models.DeepLinearlyGatedNetwork": "Eq. 6; Section 2.3, DLGN-PWC",
    "halfspace-2": "Eq. 7; Theorem 2",
    "gatelab.models.mlp": "Eq. 9",
    "halfspace-1": "Eq. 10; Theorem 1",
    "halfspace-2.2": "Section 2.2, A_π is convex",
    "gatelab.regions.half_spaces": "Section 2.2, half-spaces",
    "gatelab.regions.count_active_paths": "Section 3.1, A(x)",
    "gatelab.regions.active_region": "Section 3.1, A_π",
    "gatelab.regions.activation_region": "Section 3.1, A_b",
    "halfspace-3.1-regions": "Section 3.1, path regions against pattern regions",
    "gatelab.kernels.overlap_kernel": "Section 3.2, overlap kernel",
    "gatelab.kernels.refit_values": "Section 3.2, values for fixed gates",
    "gatelab.data.modified_fashion": "Section 5, modified Fashion-MNIST",
    "gatelab.papers.halfspace.figure1.figure1": "Figure 1",
    "halfspace-fig1a": "Figure 1, left",
    "halfspace-fig1b": "Figure 1, right",
    "halfspace-figure8": "Figure 8",
    "halfspace-table1": "Table 1",
    "halfspace-table2": "Table 2",
    "halfspace-circle": "Figure 2; Figure 3; Figure 4; Figure 5; Figure 6; Figure 9; Figure 10",
    "halfspace-fashion": "Figure 7; Figure 11; Figure 12; Figure 13; Figure 14; Figure 15; Figure 16",
}
EQUATIONS: dict[str, str] = {item: home for home, items in _ITEMS.items() for item in items.split("; ")}
"""Item of the paper → the dotted name that computes it, or the id of the theorem or experiment that measures it."""
