"""The package builds, and its wheel works where nothing else is installed."""

import pytest
from tools import wheel


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_wheel_installs_by_pip_alone():
    wheel.main()
