"""The paper "A theoretical framework for deep and locally connected ReLU network" (hierarchy).

Theorems, measured by ``gatelab theorems hierarchy``:

- ``theorems``: marginalised gradients and the reformulation (Theorems 1–4);
- ``theorems_batchnorm``: batch norm as a projection, conserved energy (Theorem 5, Eq. 81, Section 8.6.2);
- ``theorems_expressibility``: ReLU against linear networks (Theorems 6 and 7);
- ``theorems_factors``: disentangled representations (Lemma 1, Theorems 8 and 9, Section 8.7.3).

Experiments, started by ``gatelab run ID``: ``reformulation``, ``batchnorm``, ``expressibility``, ``disentangle``,
``overfitting`` and ``selectivity``. ``common`` holds what they share. The mathematics is in :mod:`gatelab.hierarchy`.
"""

_H = "gatelab.hierarchy."

EQUATIONS: dict[str, str] = {
    # Sections 2 and 8.1, 8.2: teacher, student, marginalised gradient
    "Section 2.1": _H + "fields.ReceptiveFields",
    "Section 2.2": _H + "teacher.Teacher",
    "Section 2.3": _H + "student.LocalNetwork",
    "Eq. 1": _H + "marginals.observe_student",
    "Eq. 2": _H + "marginals.Observation.given_contents",
    "Eq. 3": _H + "marginals.observe_student",
    "Eq. 4": "hierarchy-1",
    "Eq. 16": _H + "marginals.observe_student",
    "Eq. 17": _H + "trainers.GradientTrainer.update",
    "Eq. 18": _H + "marginals.Observation.given_contents",
    "Eq. 19": _H + "marginals.observe_student",
    "Eq. 20": "hierarchy-1",
    "Theorem 1": "hierarchy-1",
    "Eq. 21": "hierarchy-1",
    # Sections 3, 8.3 to 8.5: the reformulation
    "Eq. 5": _H + "marginals.Observation.gradient",
    "Goal, Section 3": "hierarchy-selectivity",
    "Theorem 2": "hierarchy-2",
    "Theorem 2, focus": _H + "exactness.conditions",
    "Theorem 2, broadness": _H + "exactness.conditions",
    "Eq. 6": _H + "exactness.conditions",
    "Eq. 7": "hierarchy-2",
    "Eq. 22": "hierarchy-2",
    "Eq. 52": _H + "exactness.conditions",
    "Theorem 3": "hierarchy-3",
    "Eq. 53": _H + "refine.full_information",
    "Table 3": _H + "events.Events",
    "Theorem 4": "hierarchy-4",
    "Eq. 8": _H + "reformulation.reformulate",
    "Eq. 59": _H + "reformulation.reformulate",
    "Eq. 60": _H + "events.Events.backward",
    "Eq. 61": _H + "reformulation.reformulate",
    "Eq. 62": _H + "reformulation.reformulate",
    "Eq. 73": _H + "reformulation.reformulate",
    "Eq. 74": _H + "reformulation.reformulate",
    # Sections 4 and 8.6: batch norm
    "Theorem 5": "hierarchy-5",
    "Eq. 9": _H + "batchnorm.standardise",
    "Eq. 10": _H + "batchnorm.batch_norm_backward",
    "Eq. 75": _H + "batchnorm.batch_norm_backward",
    "Eq. 76": _H + "batchnorm.standardise",
    "Eq. 77": _H + "batchnorm.standardise",
    "Eq. 78": _H + "batchnorm.standardise",
    "Eq. 80": _H + "batchnorm.batch_norm_jacobian",
    "Eq. 81": "hierarchy-81",
    "Eq. 82": _H + "batchnorm.batch_norm_backward",
    "Eq. 83": _H + "batchnorm.batch_norm_jacobian",
    "Section 8.6.2": "hierarchy-8.6.2",
    "Eq. 85": _H + "batchnorm.row_energy",
    # Sections 5.1 and 8.7.1: expressibility
    "Definition 1": _H + "expressive_power.vertices",
    "Definition 2": _H + "expressive_power.vertices",
    "Theorem 6": "hierarchy-6",
    "Eq. 11": _H + "expressive_power.expressibility",
    "Eq. 86": _H + "expressive_power.expressibility",
    "Eq. 87": _H + "expressive_power.expressive_network",
    "Theorem 7": "hierarchy-7",
    "Eq. 88": _H + "expressive_power.separate",
    # Sections 5.2, 8.7.2 and 8.7.3: disentangled representations
    "Definition 3": _H + "disentangle.nearest_disentangled",
    "Definition 4": _H + "disentangle.nearest_disentangled",
    "Definition 5": _H + "disentangle.nearest_separable",
    "Lemma 1": "hierarchy-L1",
    "Eq. 89": _H + "disentangle.factor_blocks",
    "Eq. 91": _H + "disentangle.factor_marginals",
    "Eq. 92": _H + "disentangle.disentangled",
    "Eq. 93": _H + "disentangle.disentangled",
    "Theorem 8": "hierarchy-8",
    "Theorem 9": "hierarchy-9",
    "Eq. 97": "hierarchy-9",
    "Eq. 100": "hierarchy-9",
    "Section 8.7.3": "hierarchy-8.7.3",
    "Eq. 102": "hierarchy-8.7.3",
    "Eq. 105": "hierarchy-8.7.3",
    # Section 6: common behaviour
    "Section 6": "hierarchy-overfitting",
    "Eq. 12": "hierarchy-overfitting",
    "Eq. 13": "hierarchy-overfitting",
}
"""Result of the paper → the dotted name that computes it, or the id of the theorem or experiment that measures it."""
