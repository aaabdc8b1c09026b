"""Kernels at scale: a cell says how far it is while its kernels are computed, which is its longest part."""

import pytest
import torch

from gatelab.data import load
from gatelab.lab.runs import Context
from gatelab.models import mlp
from gatelab.papers.npk import kernel_at_scale as at_scale


@pytest.mark.parametrize("kind", at_scale.KERNELS)
def test_the_tiles_of_kernels_are_told(kind, tmp_path, generator):
    told = []
    context = Context(tmp_path, {}, {}, lambda done, text: told.append((done, text)))
    data = load("digits").subset(60, 40)
    config = at_scale.AtScaleConfig(data="digits", ridges=(1e-1, 1.0), eigenvalues=2)
    model = torch.nn.Sequential(torch.nn.Flatten(), *mlp([64, 8, 10], generator=generator))
    at_scale._machine(kind, model, data, config, 0, context)
    shares = [done for done, _ in told]
    texts = [text for _, text in told]
    first = next(place for place, text in enumerate(texts) if text.startswith(f"{kind}: 0 of "))
    count = int(texts[first].removesuffix(" tiles").split()[-1])
    last = first + count
    # Every tile, before any solver begins.
    assert texts[first : last + 1] == [f"{kind}: {done} of {count} tiles" for done in range(count + 1)]
    assert texts[-1].startswith(f"{kind}, test examples: ")
    assert min(shares) == 0
    assert shares[-1] == 1
    ends = [shares[last], shares[texts.index(next(text for text in texts if "test examples" in text))]]
    assert ends == pytest.approx([0.5, 0.9])


def test_finished_tiles_are_told(tmp_path):
    told = []
    context = Context(tmp_path, {}, {}, lambda done, text: told.append((done, text)))
    at_scale._KernelProgress(context, "H").note("7 tiles are finished; checking them")
    assert told == [(0.0, "H: 7 tiles are finished; checking them")]


def test_among_equally_good_ridges_the_largest_is_taken():
    assert at_scale.best_ridge((1e-3, 1e-2, 0.1, 1.0), [0.998, 0.998, 0.998, 0.997]) == 0.1
    assert at_scale.best_ridge((1e-3, 1e-2), [0.99, 0.98]) == 1e-3
