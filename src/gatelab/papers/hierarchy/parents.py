"""Section 8.7.3, Eq. 109: parents that could send a disentangled gradient down, and whether descent makes them."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from gatelab.hierarchy import (
    LocalNetwork,
    NodeOptions,
    ReceptiveFields,
    ReformulatedTrainer,
    given_events,
    nearest_disentangled,
    reformulate,
)
from gatelab.hierarchy.codes import all_values
from gatelab.hierarchy.disentangle import factor_marginals
from gatelab.hierarchy.events import Events
from gatelab.hierarchy.parents import disentangling_weights
from gatelab.lab.experiment import SeededConfig, cell_per_run
from gatelab.lab.findings import Findings, Table, mean_curve
from gatelab.lab.runs import Cell, Context, Result
from gatelab.lab.verdicts import Claim, below, greater, within
from gatelab.papers.common import experiment, figure, findings, over
from gatelab.papers.hierarchy.theorems_random import random_parents


class ParentsConfig(SeededConfig):
    """A child with a few factors, and parents that each carry information on it; the label is all factors together."""

    runs: int = Field(default=8, ge=1)
    factors: int = Field(default=3, ge=2, le=4)
    shares: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)  # number of parents, as a share of 2^k − 1
    depth: int = Field(default=1, ge=1, le=1)  # Eq. 109 is about one layer of parents
    steps: int = Field(default=1000, ge=1)
    learning_rate: float = Field(default=0.2, gt=0)


def parents_of_one_child(prior: Tensor, parents: list[Tensor]) -> Events:
    """Return the probabilities of a leaf "beta", parents "a0", "a1", … and a top that knows all of z_β."""
    k = len(prior).bit_length() - 1
    names = [f"a{number}" for number in range(len(parents))]
    regions = {"beta": range(k), **{name: range(k) for name in names}, "top": range(k)}
    fields = ReceptiveFields(regions, {**dict.fromkeys(names, ("beta",)), "top": tuple(names)})
    matrices = {}
    for name, given in zip(names, parents, strict=True):
        # P(z_α | z_β) by Bayes: z_ω is z_β, so this is also P(z_α | z_ω).
        on = _marginal(prior, given)
        matrices["top", name] = (given * on.unsqueeze(1) / prior).T
        matrices[name, "beta"] = given
    bits = 2.0 * all_values((2,) * k).double() - 1
    return given_events(fields, prior, matrices, bits)


def _marginal(prior: Tensor, given: Tensor) -> Tensor:
    """Return P(z_α), with which the rows of P(z_β | z_α) add up to P(z_β)."""
    difference = given[1] - given[0]
    on = ((prior - given[0]) @ difference / (difference @ difference)).clamp(0, 1)
    return torch.stack([1 - on, on])


def arriving(student: LocalNetwork, events: Events) -> Tensor:
    """Return G̃ at the child's nodes before any gate: Σ_α P_αβᵀ G̃_α W_βαᵀ."""
    found = reformulate(student, events)
    parts = [
        events.matrix(name, "beta").T @ found.gradients[name] @ student.incoming(name)["beta"].detach().T
        for name in events.fields.hidden
    ]
    return torch.stack(parts).sum(dim=0)


def _work(config: ParentsConfig, cell: Cell, context: Context) -> Result:
    generator = torch.Generator().manual_seed(int(cell.parameters["seed"]))
    enough = 2**config.factors - 1
    records = []
    for share in config.shares:
        count = max(1, round(share * enough))
        prior, parents = random_parents(config.factors, count, generator)
        events, marginals = parents_of_one_child(prior, parents), factor_marginals(prior)
        codes = {"beta": (2.0 * all_values((2,) * config.factors) - 1).double() / 2}
        record: Result = {"solved": disentangling_weights(parents, torch.ones(count).double(), marginals).residual}
        for kind, relu in (("linear", False), ("ReLU", True)):
            student = LocalNetwork(
                events.fields,
                1,
                config.factors,
                encodings=codes,
                hidden=NodeOptions(relu=relu),
                dtype=torch.float64,
                generator=generator,
            )
            trainer = ReformulatedTrainer(student, events, config.learning_rate)
            record[f"{kind}, start"] = nearest_disentangled(arriving(student, events), marginals).relative
            for _ in range(config.steps):
                trainer.step()
            record[f"{kind}, end"] = nearest_disentangled(arriving(student, events), marginals).relative
        records.append(record)
        context.tell(len(records) / len(config.shares), f"{count} parents")
    return {"records": records}


def _findings(config: ParentsConfig, results: Mapping[str, Result]) -> Findings:
    runs, enough = [result["records"] for result in results.values()], 2**config.factors - 1
    names = ("solved", "linear, start", "linear, end", "ReLU, start", "ReLU, end")
    found = {n: over(runs, len(config.shares), lambda run, i, n=n: run[i][n]) for n in names}
    labels = {
        "solved": "weights solved for (Eq. 109)",
        "linear, end": "linear, after descent",
        "ReLU, end": "ReLU, after descent",
    }
    table = Table(
        f"Distance of the gradient at a child with {config.factors} factors from disentangled, relative",
        ("parents", *(labels.get(name, name) for name in names)),
        tuple(
            (str(max(1, round(share * enough))), *(found[name][i].text() for name in names))
            for i, share in enumerate(config.shares)
        ),
        f"± over {config.runs} runs; {config.steps} steps of reformulated descent. {enough} parents can span "
        "everything.",
    )
    curves = [mean_curve(labels.get(name, name), config.shares, found[name]) for name in names]
    spanned = [i for i, share in enumerate(config.shares) if share >= 1]
    solved = max((max(found["solved"][i].values) for i in spanned), default=0.0)
    last = len(config.shares) - 1
    return findings(
        "hierarchy, Eq. 109: can parents send a disentangled gradient down, and do they learn to?",
        f"With {enough} parents or more the weights that Eq. 109 asks for exist (distance {solved:.0e}); descent ends "
        f"at {found['linear, end'][last].mean:.2f} (linear) and {found['ReLU, end'][last].mean:.2f} (ReLU).",
        table,
        figure(
            "Parents against distance",
            "parents / (2^k − 1)",
            "distance from disentangled",
            curves,
            "Mean and its error.",
        ),
        Claim(f"With {enough} parents or more the weights exist (8.7.3)", within(solved, 1e-8, "largest distance")),
        Claim("Descent finds them (linear, most parents: distance below 0.1)", below(found["linear, end"][last], 0.1)),
        Claim(
            "Descent brings the gradient nearer to disentangled (linear, most parents)",
            greater(found["linear, start"][last], found["linear, end"][last], paired=True),
        ),
        "The last two claims are ours; the paper leaves the question to future work.",
    )


PARENTS = experiment(
    "hierarchy-parents",
    "Eq. 109: parents that disentangle the gradient below them, solved for and learnt",
    ParentsConfig,
    cell_per_run,
    _work,
    _findings,
    smoke={"runs": 2, "factors": 2, "shares": (0.5, 1.0), "steps": 3},
    paper={"runs": 30, "factors": 4, "steps": 10_000},
)
EXPERIMENTS = (PARENTS,)
