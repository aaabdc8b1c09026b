"""The teacher-student framework in plain loops over every input, straight from the paper's definitions."""

from fractions import Fraction
from itertools import combinations, product

import torch


def joint_probabilities(teacher):
    """Return edge → P(z_α = a, z_β = b), counted one input after the other."""
    tables = {(a, b): torch.zeros(teacher.sizes[a], teacher.sizes[b]) for a, b in teacher.fields.edges}
    for row, probability in zip(*teacher.inputs.support(), strict=True):
        z = teacher(row.unsqueeze(0))
        for (parent, child), table in tables.items():
            table[int(z[parent]), int(z[child])] += probability
    return tables


def forward(student, x):
    """Return f_j(x) and f'_j(x) of every node for one input x, without batch norm."""
    outputs = {}
    for leaf in student.fields.leaves:
        code = 0
        for position in student.fields.positions(leaf):
            code = code * student.values + int(x[position])
        outputs[leaf] = [student.encodings[leaf][code, k].item() for k in range(student.n_nodes(leaf))]
    gates = {}
    for region in student.fields.inner:
        below = [value for child in student.fields.children(region) for value in outputs[child]]
        raw = []
        for j in range(student.n_nodes(region)):
            total = student.biases[region][j].item() if region in student.biases else 0.0
            for k, value in enumerate(below):
                total += student.weights[region][k, j].item() * value
            raw.append(total)
        relu = student.options[region].relu
        gates[region] = [1.0 if value > 0 or not relu else 0.0 for value in raw]
        outputs[region] = [gate * value for gate, value in zip(gates[region], raw, strict=True)]
    return outputs, gates


def backward(student, outputs, gates, target):
    """Return g_j(x) of every node for one input: Eq. 3, from the top down."""
    top = student.fields.top
    error = [t - f for t, f in zip(target, outputs[top], strict=True)]
    gradients = {top: [gate * e for gate, e in zip(gates[top], error, strict=True)]}
    for region in reversed(student.fields.inner[:-1]):
        gradients[region] = []
        for k in range(student.n_nodes(region)):
            total = 0.0
            for parent in student.fields.parents(region):
                weight = student.incoming(parent)[region]
                for j, g in enumerate(gradients[parent]):
                    total += weight[k, j].item() * g
            gradients[region].append(gates[region][k] * total)
    return gradients


def in_hull(point, others):
    """Tell whether a point is a convex combination of others: Carathéodory, in exact fractions, over all simplices."""
    point = [Fraction(v).limit_denominator(10**6) for v in point]
    others = [[Fraction(v).limit_denominator(10**6) for v in row] for row in others]
    for size in range(1, len(point) + 2):
        for chosen in combinations(others, size):
            if _inside_simplex(point, chosen):
                return True
    return False


def _inside_simplex(point, corners):
    """Solve Σ a_i c_i = p, Σ a_i = 1 by elimination; only unique solutions (others appear with fewer corners)."""
    rows = [[corner[k] for corner in corners] + [point[k]] for k in range(len(point))]
    rows.append([Fraction(1)] * len(corners) + [Fraction(1)])
    pivot = 0
    for column in range(len(corners)):
        found = next((r for r in range(pivot, len(rows)) if rows[r][column] != 0), None)
        if found is None:
            return False
        rows[pivot], rows[found] = rows[found], rows[pivot]
        lead = rows[pivot][column]
        rows[pivot] = [value / lead for value in rows[pivot]]
        for r in range(len(rows)):
            if r != pivot and rows[r][column] != 0:
                factor = rows[r][column]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[pivot], strict=True)]
        pivot += 1
    return all(row[-1] == 0 for row in rows[pivot:]) and all(row[-1] >= 0 for row in rows[:pivot])


def total_variation(teacher, fine, own, other):
    """Return E TV(P(x_fine | z_own, z_other), P(x_fine | z_own)), summed over every event and every content."""
    x, p = teacher.inputs.support()
    z = teacher(x)
    contents = teacher.contents(fine, x)
    total = 0.0
    for a, b in product(range(teacher.sizes[own]), range(teacher.sizes[other])):
        both, alone = (z[own] == a) & (z[other] == b), z[own] == a
        if not p[both].sum() > 0:
            continue
        distance = 0.0
        for content in contents.unique():
            given_both = p[both & (contents == content)].sum() / p[both].sum()
            given_own = p[alone & (contents == content)].sum() / p[alone].sum()
            distance += abs(given_both - given_own).item() / 2
        total += p[both].sum().item() * distance
    return total
