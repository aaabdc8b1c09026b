"""Probabilities between the variables of a teacher, and training on them instead of on inputs."""

import time
from copy import deepcopy

import torch

from benchmarks.timing import Ratio, interleaved
from gatelab.hierarchy import (
    GradientTrainer,
    ReformulatedTrainer,
    Teacher,
    exact_events,
    full_information,
    string_fields,
    student_for,
)
from gatelab.hierarchy.rules import random_table

NODES = 32


def run() -> list[Ratio]:
    """Measure on one thread; with two threads, many small steps would measure how threads wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_probabilities(), *_training()]
    finally:
        torch.set_num_threads(threads)


def _probabilities() -> Ratio:
    teacher = Teacher(string_fields(16, [4, 2]), random_table(2, torch.Generator().manual_seed(0)))
    exact_events(teacher)
    start = time.perf_counter()
    exact_events(teacher)
    seconds = time.perf_counter() - start
    work = "exact P matrices, 3 levels of binary variables on 16 bits"
    return Ratio(work, "two seconds (time)", seconds / 2, "≤ 1", seconds <= 2)


def _training() -> list[Ratio]:
    """Compare one step on z with one step on all 16,384 inputs: 14 bits in pairs, then in overlapping sixes."""
    generator = torch.Generator().manual_seed(0)
    fields = string_fields(14, [2, 3], [2, 2])
    lossy = Teacher(fields, random_table(3, generator), top=random_table(2, generator))
    ratios = []
    for name, teacher in (("z tells everything", full_information(lossy)), ("lossy z", lossy)):
        student = student_for(teacher, NODES, dtype=torch.float64, generator=generator)
        twin = deepcopy(student)
        on_z, on_x = ReformulatedTrainer(twin, exact_events(teacher), 0.1), GradientTrainer(student, teacher, 0.1)
        times = interleaved(on_z.step, on_x.step)
        if name == "z tells everything":
            for a, b in zip(twin.parameters(), student.parameters(), strict=True):
                torch.testing.assert_close(a, b, atol=1e-10, rtol=0)
        ratio = times[1] / times[0]
        work = f"reformulated step, 14 bits, {NODES} nodes per region, {name}"
        ratios.append(Ratio(work, "full-batch gradient descent on all inputs (speed-up)", ratio, "≥ 10", ratio >= 10))
    return ratios
