"""Everything runs in float64, on one thread, with the shapes in the signatures checked."""

import signal
from importlib.util import find_spec
from pathlib import Path

from jaxtyping import config, install_import_hook

import tests.typechecker  # noqa: F401  the hook below finds it as an attribute of its package

# All modules but those that meet other things than tensors: Numba's compiler, torch.fx's proxies, typer, and
# scikit-learn, whose estimators check their parameters when they are fitted.
_UNCHECKED = tuple(
    "__init__ popcount octets panel_loops offset_loops gather_loops window_loops splitting winning stepping "
    "joining contouring tracer functions pooling twin dgn residual theorems_bundles models.gdln node_gates "
    "estimators.features estimators.ridge".split()
)
_ROOT = Path(find_spec("gatelab").submodule_search_locations[0])
_MODULES = [".".join(("gatelab", *path.relative_to(_ROOT).with_suffix("").parts)) for path in _ROOT.rglob("*.py")]
_CHECKED = [name for name in _MODULES if not name.endswith(_UNCHECKED) and ".cli" not in name]
install_import_hook(_CHECKED, "tests.typechecker.check")

import pytest  # noqa: E402
import torch  # noqa: E402

torch.manual_seed(0)  # for models made while tests are collected

# A shell starts jobs in the background with SIGINT ignored, and nohup starts them with SIGHUP ignored. Tests send both
# signals, to this process and to children, which would inherit that.
for _number, _handler in {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}.items():
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)


@pytest.fixture(autouse=True)
def _reproducible_double_precision():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def single_precision(_reproducible_double_precision):
    """As a user runs it: what is made without a dtype is float32."""
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def unchecked():
    """As a user runs it: arguments of the wrong type reach the library's own checks."""
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
