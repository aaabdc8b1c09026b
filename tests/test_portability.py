"""The package imports where Unix's own modules do not exist."""

import subprocess
import sys

# Other packages may import them here: psutil and filelock do so on Unix, and have other code for Windows.
CODE = """
import builtins, importlib, pkgutil
real = builtins.__import__

def refuse(name, globals=None, *rest, **named):
    if name in ("fcntl", "resource") and (globals or {}).get("__name__", "").startswith("gatelab"):
        raise ImportError(f"{globals['__name__']} imports {name}, which Windows does not have")
    return real(name, globals, *rest, **named)

builtins.__import__ = refuse
import gatelab
modules = [module.name for module in pkgutil.walk_packages(gatelab.__path__, "gatelab.")]
for name in modules:
    if name != "gatelab.__main__":
        importlib.import_module(name)
for name in gatelab.__all__:
    getattr(gatelab, name)
print(len(modules), len(gatelab.__all__))
"""


def test_everything_imports_without_fcntl_and_resource():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    modules, exports = map(int, done.stdout.split())
    assert modules > 100
    assert exports > 10
