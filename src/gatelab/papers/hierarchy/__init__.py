"""The paper "A theoretical framework for deep and locally connected ReLU network" (hierarchy).

Theorems, measured by ``gatelab theorems hierarchy``:

- ``theorems``: marginalised gradients and the reformulation (Theorems 1–4);
- ``theorems_batchnorm``: batch norm as a projection (Theorem 5, Eq. 81);
- ``theorems_energy``: the energy that batch norm conserves, without and with biases (Section 8.6.2);
- ``theorems_expressibility``: ReLU against linear networks (Theorems 6 and 7);
- ``theorems_factors``: disentangled representations (Lemma 1, Theorems 8 and 9, Section 8.7.3);
- ``theorems_corrections``: what statements need in order to be true (gates, softmax, the sum of the errors);
- ``theorems_random``: remarks (random weights, linear networks with batch norm, parents that disentangle).

Experiments, started by ``gatelab run ID``: ``reformulation``, ``batchnorm``, ``expressibility`` and random layers,
``overfitting``, ``budget``, ``parents``, ``cnn`` on real images, and in ``scores`` disentanglement and selectivity. The
mathematics is in :mod:`gatelab.hierarchy`.
"""

# Home (a dotted name, or the id of a theorem or experiment) → the items of the paper that it computes or measures.
_ITEMS = {
    # Sections 2, 8.1 and 8.2: teacher, student, marginalised gradient
    "gatelab.hierarchy.fields.ReceptiveFields": "Section 2.1",
    "gatelab.hierarchy.teacher.Teacher": "Section 2.2",
    "gatelab.hierarchy.student.LocalNetwork": "Section 2.3",
    "gatelab.hierarchy.network_teacher.teacher_from": "Example of teacher networks, Section 2.2",
    "gatelab.hierarchy.marginals.observe_student": "Eq. 1; Eq. 3; Eq. 16; Eq. 19",
    "gatelab.hierarchy.observation.Observation.given_contents": "Eq. 2; Eq. 18",
    "hierarchy-1": "Eq. 4; Eq. 20; Theorem 1; Eq. 21",
    "gatelab.hierarchy.trainers.GradientTrainer.update": "Eq. 17",
    # Sections 3, 8.3 to 8.5: the reformulation
    "gatelab.hierarchy.observation.Observation.gradient": "Eq. 5",
    "hierarchy-selectivity": "Goal, Section 3",
    "hierarchy-2": "Theorem 2; Eq. 7; Eq. 22",
    "gatelab.hierarchy.exactness.conditions": "Theorem 2, focus; Theorem 2, broadness; Eq. 6; Eq. 52",
    "hierarchy-Eq6": "Theorem 2, decorrelation",
    "hierarchy-2-budget": "Theorem 2, errors",
    "gatelab.hierarchy.diagnosing.diagnose": "Theorem 2, on a network of one's own",
    "hierarchy-3": "Theorem 3",
    "gatelab.hierarchy.refine.full_information": "Eq. 53",
    "gatelab.hierarchy.events.Events": "Table 3",
    "hierarchy-4": "Theorem 4",
    "gatelab.hierarchy.reformulation.reformulate": "Eq. 8; Eq. 59; Eq. 61; Eq. 62; Eq. 73; Eq. 74",
    "gatelab.hierarchy.events.Events.backward": "Eq. 60",
    "hierarchy-4-softmax": "Softmax at the top, Section 3",
    "gatelab.hierarchy.events.sampled_inputs": "P(x) from P(z_α | z_β), Section 2.2",
    # Sections 4 and 8.6: batch norm
    "hierarchy-5": "Theorem 5",
    "gatelab.hierarchy.batchnorm.standardise": "Eq. 9; Eq. 76; Eq. 77; Eq. 78",
    "gatelab.hierarchy.batchnorm.batch_norm_backward": "Eq. 10; Eq. 75; Eq. 82",
    "gatelab.hierarchy.batchnorm.batch_norm_jacobian": "Eq. 80; Eq. 83",
    "hierarchy-81": "Eq. 81",
    "hierarchy-8.6.2": "Section 8.6.2",
    "gatelab.hierarchy.batchnorm.row_energy": "Eq. 85",
    "hierarchy-8.6.2-bias": "Footnote 1, biases",
    # Sections 5.1 and 8.7.1: expressibility
    "gatelab.hierarchy.expressive_power.vertices": "Definition 1; Definition 2",
    "hierarchy-6": "Theorem 6",
    "gatelab.hierarchy.expressive_power.expressibility": "Eq. 11; Eq. 86",
    "gatelab.hierarchy.expressive_power.expressive_network": "Eq. 87",
    "hierarchy-7": "Theorem 7",
    "gatelab.hierarchy.expressive_power.separate": "Eq. 88",
    "hierarchy-6-batchnorm": "Theorem 6, batch norm",
    "hierarchy-7-random": "Random W, after Theorem 7",
    # Sections 5.2, 8.7.2 and 8.7.3: disentangled representations
    "gatelab.hierarchy.disentangle.nearest_disentangled": "Definition 3; Definition 4",
    "gatelab.hierarchy.disentangle.nearest_separable": "Definition 5",
    "hierarchy-L1": "Lemma 1",
    "gatelab.hierarchy.disentangle.factor_blocks": "Eq. 89",
    "gatelab.hierarchy.disentangle.factor_marginals": "Eq. 91",
    "gatelab.hierarchy.disentangle.disentangled": "Eq. 92; Eq. 93",
    "hierarchy-8": "Theorem 8",
    "hierarchy-9": "Theorem 9; Eq. 97; Eq. 100",
    "hierarchy-8.7.3": "Section 8.7.3; Eq. 102; Eq. 105",
    "gatelab.hierarchy.parents.disentangling_weights": "Eq. 109",
    "hierarchy-parents": "Eq. 109, under descent",
    # Section 6: common behaviour
    "hierarchy-overfitting": "Section 6; Eq. 12; Eq. 13; Eq. 14; Eq. 15",
}
EQUATIONS: dict[str, str] = {item: home for home, items in _ITEMS.items() for item in items.split("; ")}
"""Item of the paper → the dotted name that computes it, or the id of the theorem or experiment that measures it."""
