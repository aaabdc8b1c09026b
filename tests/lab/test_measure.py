from math import isnan

import numpy as np
import pytest

from gatelab.lab.measure import fitted_power


def test_exact_powers():
    assert fitted_power([1, 2, 4], [3, 12, 48]) == pytest.approx(2)
    assert fitted_power([1, 2, 4], [5, 2.5, 1.25]) == pytest.approx(-1)


def test_noisy_values_are_fitted_as_numpy_fits_them():
    generator = np.random.default_rng(0)
    x = np.geomspace(3, 700, 9)
    y = 0.2 * x**-0.7 * np.exp(0.3 * generator.standard_normal(9))
    assert fitted_power(x.tolist(), y.tolist()) == pytest.approx(np.polyfit(np.log(x), np.log(y), 1)[0], abs=1e-11)


def test_one_point_has_no_power():
    assert isnan(fitted_power([1], [2]))
