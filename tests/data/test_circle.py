"""The circle's target."""

from math import pi

import pytest
import torch

from gatelab.data import circle
from gatelab.data.circle_data import circle_target
from gatelab.errors import InputError


def test_the_target_is_smooth_above_rough_below_and_joins():
    data = circle(200, low=1, high=8)
    angle = torch.atan2(data.train_x[:, 1], data.train_x[:, 0])
    upper = data.train_x[:, 1] > 0
    assert upper.sum() == 100
    assert upper[:100].all()
    torch.testing.assert_close(data.train_y[upper], angle[upper].sin(), rtol=0, atol=1e-12)
    torch.testing.assert_close(data.train_y[~upper], (8 * angle[~upper]).sin(), rtol=0, atol=1e-12)
    joins = circle_target(torch.tensor([0.0, pi - 1e-9, pi + 1e-9, 2 * pi - 1e-9]))
    assert joins.abs().max() < 1e-7
    torch.testing.assert_close(data.test_x.norm(dim=1), torch.ones(200))
    assert not torch.isin(data.test_x[:, 0], data.train_x[:, 0]).all()


def test_bad_circles_are_refused():
    with pytest.raises(InputError, match="1 points, frequencies 1 and 8"):
        circle(1)
    with pytest.raises(InputError, match="frequencies 0 and 8; give"):
        circle(10, low=0)
