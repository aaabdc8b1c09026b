"""Every experiment and theorem by name, without importing any of them.

``find_experiment("npk-table2")`` imports only the module that holds it, so a command starts as fast with twenty
papers as with one. A new theorem or experiment is a line here; a test compares these tables with the modules.
"""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from gatelab.errors import InputError

if TYPE_CHECKING:  # so that a wrong name is refused without loading torch
    from gatelab.lab.experiment import Experiment
    from gatelab.lab.theorem import Theorem

# Module below gatelab.papers → what it holds, in the order of the printed lists.
_EXPERIMENTS = {
    "npk.table2": "npk-table2",
    "npk.figure3": "npk-figure3-stages npk-figure3-dynamics npk-figure3-kernels",
    "npk.memorisation": "npk-figure5 npk-figure6",
    "npk.theorem51": "npk-theorem51",
    "npk.kernel_regression": "npk-kernel-regression",
    "npk.kernel_at_scale": "npk-kernel-at-scale",
    "npk.cntk": "npk-cntk",
    "halfspace.circle": "halfspace-circle",
    "halfspace.initialisation": "halfspace-initialisation",
    "halfspace.path_regions": "halfspace-path-regions",
    "halfspace.fashion": "halfspace-fashion",
    "halfspace.figure8": "halfspace-figure8",
    "halfspace.hardening": "halfspace-hardening halfspace-hardening-mnist",
    "halfspace.hardening_steps": "halfspace-hardening-steps",
    "halfspace.tables": "halfspace-table1 halfspace-table2",
    "gdln.localisation": "gdln-localisation",
    "gdln.phase_diagram": "gdln-phase-diagram",
    "gdln.pulse_map": "gdln-pulse-map",
    "gdln.many_units": "gdln-gaussian-clone",
    "gdln.sign_flipping": "gdln-sign-flipping",
    "gdln.predictions": "gdln-predict-location gdln-evolving-gates",
    "gdln.theory": "gdln-theory",
    "gdln.best_gates": "gdln-best-gates",
    "gdln.optimal_gates": "gdln-optimal-gates",
    "gdln.shared_pathways": "gdln-shared-pathways",
    "hierarchy.reformulation": "hierarchy-reformulation",
    "hierarchy.batchnorm": "hierarchy-batchnorm",
    "hierarchy.expressibility": "hierarchy-expressibility hierarchy-random-rank",
    "hierarchy.scores": "hierarchy-disentangle hierarchy-selectivity",
    "hierarchy.overfitting": "hierarchy-overfitting",
    "hierarchy.cnn": "hierarchy-cnn",
    "hierarchy.budget": "hierarchy-budget",
    "hierarchy.parents": "hierarchy-parents",
}
_THEOREMS = {
    "npk.theorems": "npk-1.1 npk-2.1 npk-L2.1 npk-3.1 npk-3.2 npk-3.3 npk-C.2",
    "npk.theorems_gated": "npk-4.1 npk-4.1-values npk-4.1-features",
    "npk.theorems_expectations": "npk-LD.1 npk-5.1 npk-C.1 npk-E",
    "npk.theorems_limits": "npk-D.1 npk-D.1-printed npk-Eq2 npk-Eq2-printed npk-5.1-limit",
    "npk.theorems_angles": "npk-theta",
    "npk.theorems_start": "npk-DI npk-DLN npk-nu",
    "npk.theorems_bundles": "npk-rotation npk-residual npk-bundles npk-4.1-bundles npk-5.1-bundles npk-C-sketch",
    "halfspace.theorems": "halfspace-1 halfspace-2 halfspace-2.2 halfspace-fig1a halfspace-fig1b halfspace-3.1-regions",
    "gdln.theorems": "gdln-2 gdln-8 gdln-11 gdln-descent gdln-limit gdln-16 gdln-nlgp",
    "gdln.theorems_structure": "gdln-3.4 gdln-3.5 gdln-circulant gdln-piecewise gdln-race",
    "gdln.theorems_population": "gdln-one-basis gdln-gaussian-moments gdln-population gdln-variational",
    "gdln.theorems_gates": "gdln-filippov gdln-3.3 gdln-shared-race gdln-outputs",
    "gdln.theorems_printed": (
        "gdln-8-printed gdln-9-printed gdln-11-printed gdln-18-printed gdln-26-printed gdln-31-printed"
    ),
    "hierarchy.theorems": "hierarchy-1 hierarchy-2 hierarchy-3 hierarchy-4",
    "hierarchy.theorems_batchnorm": "hierarchy-5 hierarchy-81",
    "hierarchy.theorems_energy": "hierarchy-8.6.2 hierarchy-8.6.2-bias",
    "hierarchy.theorems_expressibility": "hierarchy-6 hierarchy-7",
    "hierarchy.theorems_factors": "hierarchy-L1 hierarchy-8 hierarchy-9 hierarchy-8.7.3",
    "hierarchy.theorems_corrections": "hierarchy-Eq6 hierarchy-2-budget hierarchy-4-softmax",
    "hierarchy.theorems_random": "hierarchy-6-batchnorm hierarchy-7-random hierarchy-109",
}
_HOMES_OF_EXPERIMENTS = {"study": "gatelab.lab.study"} | {
    name: f"gatelab.papers.{module}" for module, names in _EXPERIMENTS.items() for name in names.split()
}
_HOMES_OF_THEOREMS = {name: f"gatelab.papers.{module}" for module, names in _THEOREMS.items() for name in names.split()}


def all_experiments() -> "list[Experiment]":
    """Import and return every experiment."""
    return [find_experiment(name) for name in _HOMES_OF_EXPERIMENTS]


def find_experiment(name: str) -> "Experiment":
    """Import and return one experiment.

    Raises:
        InputError: there is no experiment of that name; the message lists the names.
    """
    if name not in _HOMES_OF_EXPERIMENTS:
        raise InputError(f"there is no experiment '{name}'; the experiments are {', '.join(_HOMES_OF_EXPERIMENTS)}")
    module = import_module(_HOMES_OF_EXPERIMENTS[name])
    return next(experiment for experiment in module.EXPERIMENTS if experiment.id == name)


def all_theorems() -> "list[Theorem]":
    """Import and return every theorem of every paper."""
    return [_theorem(name) for name in _HOMES_OF_THEOREMS]


def find_theorems(name: str) -> "list[Theorem]":
    """Import and return the theorem of this name, or all theorems of a paper; case does not matter.

    Raises:
        InputError: there is none; the message suggests similar names.
    """
    wanted = name.lower()
    names = {key.lower(): key for key in _HOMES_OF_THEOREMS}
    if wanted in names:
        return [_theorem(names[wanted])]
    of_paper = [key for lower, key in names.items() if lower.split("-")[0] == wanted]
    if of_paper:
        return [_theorem(key) for key in of_paper]
    close = get_close_matches(wanted, names, n=3, cutoff=0.4)
    hint = ", ".join(names[lower] for lower in close) or ", ".join(_HOMES_OF_THEOREMS)
    raise InputError(f"there is no theorem '{name}'; perhaps {hint}. `gatelab theorems --list` lists them")


def _theorem(name: str) -> "Theorem":
    from gatelab.lab.theorem import Theorem  # noqa: PLC0415

    module = import_module(_HOMES_OF_THEOREMS[name])
    return next(held for held in vars(module).values() if isinstance(held, Theorem) and held.id == name)
