"""Try gatelab on networks that others wrote. ``make support`` writes docs/support.md.

Every network runs in a process of its own, on one thread, with limits on time and memory. Results are added to
build/support.jsonl as they come: an interrupted run continues where it stopped, unless gatelab's source has changed.
``make support NETWORKS="a b"`` runs these networks again and keeps the other rows of the page;
``python -m tools.support --only regions a b`` renews one column of them.
"""

import copy
import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tests.third_party.networks import BY_NAME, NETWORKS, Network
from tests.third_party.witness import agree, relu_calls
from torch import Tensor, nn

import gatelab as gl
from gatelab.errors import GatelabError

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "support.md"
RESULTS = ROOT / "build" / "support.jsonl"
SECONDS = 120
GIGABYTES = 8
COLUMNS = {
    "capture": "gates",
    "dgn": "`to_dgn`",
    "dlgn": "`to_dlgn`",
    "npk": "path kernel",
    "features": "path features",
    "regions": "regions",
    "ntk": "NTK",
}
FLIPPED = "exact (rounding flips gates)"
COARSE = "exact (to 1e-3)"  # in rows from before float32 was compared with float64
GOOD = ("exact", "estimated", "converted", FLIPPED, COARSE)
TOO_SLOW, TOO_LARGE = f"too slow (>{SECONDS} s)", f"too large (>{GIGABYTES} GB)"

Row = dict[str, str]


# --- one network, in its own process


def capture(net: nn.Module, x: Tensor) -> str:
    """Capture the gates and compare them with an independent record of all ReLU calls."""
    return "exact" if agree(gl.capture_gates(net, x), relu_calls(net, x)) else "differs"


def dgn(net: nn.Module, x: Tensor) -> str:
    """Convert to a deep gated network, which must give the same output: bit for bit if the gates are bits."""
    twin = gl.to_dgn(net, gl.Regime.FRNPF_DI, x=x)
    with torch.no_grad():
        if torch.equal(twin(x), net(x)):
            return "exact"
        net, x = net.double(), x.double()
        y = net(x)
        close = torch.allclose(gl.to_dgn(net, gl.Regime.FRNPF_DI, x=x)(x), y, rtol=0, atol=1e-11 * float(y.abs().max()))
        return "exact" if close and gl.capture_gates(net, x).kind != "bits" else "differs"


def dlgn(net: nn.Module, x: Tensor) -> str:
    """Convert to a deep linearly gated network, which computes something else but must run."""
    twin = gl.to_dlgn(net, x=x)
    with torch.no_grad():
        return "converted" if twin(x).isfinite().all() else "differs"


def npk(net: nn.Module, x: Tensor) -> str:
    """Compute the exact path kernel of two images."""
    kernel = gl.neural_path_kernel(net, x).double()
    return "exact" if kernel.isfinite().all() and torch.allclose(kernel, kernel.T, rtol=1e-4) else "differs"


def features(net: nn.Module, x: Tensor) -> str:
    """Compute random features, whose inner products estimate the path kernel."""
    return "estimated" if gl.path_features(net, x, 64).isfinite().all() else "differs"


def regions(net: nn.Module, x: Tensor) -> str:
    """Cut a short segment into its linear pieces; their maps must give the network's outputs."""
    net, x = net.double(), x.double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # matrices too large for exact signs: the outputs are compared
        pieces = gl.regions.linear_regions_1d(net, (0.0, 1e-5), origin=x[0], direction=x[1] - x[0])
    chosen = torch.linspace(0, len(pieces) - 1, min(len(pieces), 4)).long()
    middle = pieces.ends[chosen].mean(dim=1)
    predicted = (pieces.maps[chosen] * torch.stack([torch.ones_like(middle), middle], dim=1)[:, None]).sum(dim=2)
    with torch.no_grad():
        y = net(x[0] + middle.view(-1, 1, 1, 1) * (x[1] - x[0])).flatten(1)
    return "exact" if torch.allclose(predicted, y, rtol=1e-8, atol=1e-9 * float(y.abs().max())) else "differs"


def ntk(net: nn.Module, x: Tensor) -> str:
    """Compute the tangent kernel of the first output in float64, check it by autograd, and float32 against it."""
    net.requires_grad_()  # the kernel is that of all parameters, those that are kept fixed in training included
    nets, images = (net, copy.deepcopy(net).double()), (x, x.double())
    try:
        squares = [_squared_gradient(*each) for each in zip(nets, images, strict=True)]
    except RuntimeError:
        return "fails: the network has no backward pass"
    single, double = (gl.neural_tangent_kernel(*each, outputs=0).double() for each in zip(nets, images, strict=True))
    if not torch.allclose(double[0, 0], squares[1], rtol=1e-9):
        return "differs"
    size = double.diag().sqrt()
    if ((single - double).abs() < 1e-5 * size * size[:, None]).all():
        return "exact"
    gates = [gl.capture_gates(*each) for each in zip(nets, images, strict=True)]
    explained = any(gates[0].flips(gates[1]).values()) and torch.allclose(single[0, 0], squares[0], rtol=1e-3)
    return FLIPPED if explained else "differs"


def _squared_gradient(net: nn.Module, x: Tensor) -> Tensor:
    """Return the squared length of the gradient of the first output at the first image, by plain autograd."""
    gradients = torch.autograd.grad(net(x[:1]).flatten()[0], list(net.parameters()), allow_unused=True)
    return torch.stack([gradient.double().square().sum() for gradient in gradients if gradient is not None]).sum()


CAPABILITIES: dict[str, Callable[[nn.Module, Tensor], str]] = {
    function.__name__: function for function in (capture, dgn, dlgn, npk, features, ntk, regions)
}


def outcome(network: Network, capability: str) -> str:
    """Return what a capability gives for a network: exact, estimated, refused with the reason, …."""
    try:
        return CAPABILITIES[capability](network.build(), network.images())
    except GatelabError as error:
        return f"refused: {short(str(error))}"
    except (MemoryError, RuntimeError) as error:
        lack = isinstance(error, MemoryError) or "allocate memory" in str(error)
        return TOO_LARGE if lack else f"fails: {type(error).__name__}"
    except Exception as error:  # whatever is not refused properly belongs on the page
        return f"fails: {type(error).__name__}"


_FACTS = {  # what a refusal says -> the same in a few words
    "uses the same weight": "tied weights",
    "has the same weight": "tied weights",
    "different answers alone and among others": "answers depend on the other examples",
    "not weights of Linear or Conv layers": "weights outside Linear and Conv layers",
    "no initialiser is known": "weights outside Linear and Conv layers",
    "no fixed graph of operations": "no fixed graph of operations",
    "no gates found": "no gates found",
    "- no gate:": "no gates found",
}
_PLACES = (  # where a refusal names the first operation
    r", operation (\w+):",
    r"^\s*- (\w+) in module",
    r"^\s*- module '[^']*' \((\w+)\)",
    r"rule for: (\w+) in module",
    r"rule for: module '[^']*' \((\w+)\)",
    r"^module '[^']*' \((\w+)\)",
    r"^(\w+) in module",
)


def short(message: str) -> str:
    """Return the reason of a refusal in a few words: the fact, or the operation that it names first."""
    for words, fact in _FACTS.items():
        if words in message:
            return fact
    for place in _PLACES:
        found = re.search(place, message, re.MULTILINE)
        if found:
            return found[1]
    return " ".join(re.split(r"[:;(\n|]", message)[0].split()[:9])


def work(name: str, capabilities: Iterable[str]) -> None:
    """Print one line for each capability; runs in a process of its own."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES * 2**30, GIGABYTES * 2**30))
    for capability in capabilities:
        _allow_processor_time(SECONDS)
        start = time.process_time()
        found = outcome(BY_NAME[name], capability)
        seconds = round(time.process_time() - start, 1)
        print(json.dumps({"capability": capability, "outcome": found, "seconds": seconds}), flush=True)  # noqa: T201


def _allow_processor_time(seconds: int) -> None:
    """Let the system end this process after so much more processor time: other work does not count."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime) + seconds + 1, most))


# --- the run over all networks


def measure(name: str, capabilities: list[str]) -> Iterable[dict[str, Any]]:
    """Run capabilities of a network in a new process; where it is ended at a limit, go on with the rest in another."""
    waiting = list(capabilities)
    while waiting:
        command = [sys.executable, "-m", "tools.support", "--work", name, *waiting]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    record = json.loads(line)
                    waiting.remove(record["capability"])
                    yield record
        if waiting:
            late = process.returncode == -signal.SIGXCPU
            yield {"capability": waiting.pop(0), "outcome": TOO_SLOW if late else "fails: the process ended"}


def run(names: list[str], capabilities: Iterable[str], *, again: bool) -> None:
    """Measure the networks, add each result to the file at once, and write the page at the end."""
    RESULTS.parent.mkdir(exist_ok=True)
    code = fingerprint()
    done = {} if again else recorded(code)
    for name in names:
        for record in measure(name, [key for key in capabilities if key not in done.get(name, {})]):
            entry = {"network": name, "code": code, "date": f"{datetime.now(UTC):%Y-%m-%d}"} | record
            with RESULTS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
            print(f"{name:36s} {record['capability']:9s} {record['outcome']}", flush=True)  # noqa: T201
    write_page(code)


def fingerprint() -> str:
    """Return a digest of gatelab's source: results of other code do not count as done."""
    package = Path(next(iter(gl.__path__)))
    source = b"".join(path.read_bytes() for path in sorted(package.rglob("*.py")))
    return hashlib.sha256(source).hexdigest()[:16]


def recorded(code: str) -> dict[str, Row]:
    """Return the results so far of this source, by network; the last of several counts."""
    rows: dict[str, Row] = {}
    if RESULTS.exists():
        entries = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
        for entry in (entry for entry in entries if entry["code"] == code):
            rows.setdefault(entry["network"], {}).update({entry["capability"]: entry["outcome"], "date": entry["date"]})
    return rows


# --- the page


def known(text: str) -> dict[str, Row]:
    """Read the rows of a page back."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == len(COLUMNS) + 3:
            rows[cells[0].strip("`")] = dict(zip((*COLUMNS, "date"), cells[2:], strict=True))
    return rows


def write_page(code: str) -> None:
    """Write what has been measured; cells that were not measured again stay, and a row has its latest cell's date."""
    rows = known(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    rows |= {name: rows.get(name, {}) | row for name, row in recorded(code).items()}
    whole = {name: row for name, row in rows.items() if name in BY_NAME and row.keys() > COLUMNS.keys()}
    PAGE.write_text(page(whole), encoding="utf-8")


def page(rows: dict[str, Row]) -> str:
    """Return the whole page; networks without results are left out."""
    listed = [network for network in NETWORKS if network.name in rows]
    linear = [network for network in listed if network.is_piecewise_linear]  # hard gates alone
    curved = [network for network in listed if not network.is_piecewise_linear]
    return "\n".join(
        [*_head(linear, rows), *_table(linear, rows), "", *_curved_head(curved, rows), *_table(curved, rows), ""]
    )


def _head(linear: list[Network], rows: dict[str, Row]) -> list[str]:
    last = max((row["date"] for row in rows.values()), default="never")
    good = {key: sum(rows[n.name][key] in GOOD for n in linear) for key in COLUMNS}
    return [
        "# Networks that others wrote",
        "",
        f"What gatelab does with {len(rows)} architectures of pytorchcv, with random weights.",
        f"Made by `make support`, last on {last}: one thread of {os.cpu_count()} cores, torch {version('torch')},",
        f'pytorchcv {version("pytorchcv")}. `make support NETWORKS="a b"` renews the rows of these networks.',
        "",
        f"Of the {len(linear)} piecewise linear ones:",
        "",
        f"- gates captured: {good['capture']}",
        f"- converted by `to_dgn`, with the same output bit for bit: {good['dgn']}; by `to_dlgn`: {good['dlgn']}",
        f"- exact path kernel: {good['npk']}; estimate by path features: {good['features']}",
        f"- exact regions on a segment: {good['regions']}",
        f"- neural tangent kernel (NTK): {good['ntk']}",
        "",
        *_MEANING,
        "",
    ]


_MEANING = f"""\
| column | "exact" means |
|---|---|
| gates | `gl.capture_gates` agrees with an independent record of every ReLU call, in order and bit for bit |
| `to_dgn` | the twin under `Regime.FRNPF_DI` gives the output of the network, bit for bit (soft gates: to 1e-11) |
| `to_dlgn` | "converted": the linearly gated network runs; it is another function |
| path kernel | `gl.neural_path_kernel` of two images, float32 |
| path features | "estimated": `gl.path_features`, 64 features; their inner products estimate the path kernel |
| regions | `gl.regions.linear_regions_1d` on a short segment between two images gives the network's outputs |
| NTK | `gl.neural_tangent_kernel` of two images, first output: float64 as plain autograd, float32 within 1e-5 |

"To 1e-3": measured before that; the float32 diagonal agrees with plain autograd.
"Rounding flips gates": in float32 some gates are not those of float64; the float32 kernel is that of its own gates.
A row's date is that of its latest cell; a run in part keeps the others.
Each entry has {SECONDS} s of processor time and {GIGABYTES} GB, the building of the network included. A refusal names
the first operation without a rule.""".splitlines()


def _curved_head(curved: list[Network], rows: dict[str, Row]) -> list[str]:
    good = {key: sum(rows[n.name][key] in GOOD for n in curved) for key in COLUMNS}
    return [
        "## Networks that are not piecewise linear",
        "",
        f"These {len(curved)} networks have soft gates (squeeze-and-excitation, SiLU, Hardswish, channel attention) or",
        "statistics of the example between gates, which are refused (local response and instance norm). Of them:",
        "",
        f"- gates captured: {good['capture']}; converted by `to_dgn`, with the same output: {good['dgn']}",
        f"- exact path kernel: {good['npk']}; estimate by path features: {good['features']}; NTK: {good['ntk']}",
        "",
        "Regions are those of piecewise linear networks, so there are none here.",
        "",
    ]


def _table(networks: list[Network], rows: dict[str, Row]) -> list[str]:
    head = ["network", "pixels", *COLUMNS.values(), "date"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for network in networks:
        row = rows[network.name]
        cells = [f"`{network.name}`", str(network.size), *(row[key] for key in COLUMNS), row["date"]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main(arguments: list[str]) -> None:
    """Run the networks named, or continue the run over all of them."""
    if arguments[:1] == ["--work"]:
        work(arguments[1], arguments[2:])
        return
    capabilities = list(CAPABILITIES)
    if arguments[:1] == ["--only"]:
        capabilities, arguments = arguments[1:2], arguments[2:]
        if not capabilities or capabilities[0] not in CAPABILITIES:
            sys.exit(f"--only takes one of {' '.join(CAPABILITIES)}")
    unknown = [name for name in arguments if name not in BY_NAME]
    if unknown:
        sys.exit(f"not in tests/third_party/networks.py: {' '.join(unknown)}")
    run(arguments or list(BY_NAME), capabilities, again=bool(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
