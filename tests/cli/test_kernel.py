"""``gatelab kernel`` as a person types it."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import gatelab as gl
from gatelab import cli
from gatelab.errors import GatelabError
from gatelab.models.from_file import factory_from_file, seeded_network

runner = CliRunner()

MODEL = """
import os
import time

from torch import nn

def small():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))

def fussy(size):
    return nn.Linear(size, size)

def nothing():
    return 7

def square():
    return nn.Linear(20, 3)

class Slow(nn.Sequential):
    def forward(self, x):
        time.sleep(float(os.environ["PAUSE"]))
        return super().forward(x)

def slow():
    return Slow(*small())
"""


@pytest.fixture
def place(tmp_path):
    (tmp_path / "net.py").write_text(MODEL)
    return tmp_path


@pytest.fixture(autouse=True)
def _single_precision():
    torch.set_default_dtype(torch.float32)


def invoke(*args):
    return runner.invoke(cli.app, ["kernel", *map(str, args)])


def network(place) -> torch.nn.Module:
    factory = factory_from_file(f"{place / 'net.py'}:small")
    return seeded_network(factory, 0).eval()


def test_a_kernel_of_a_users_network_on_embedded_data(place):
    answer = invoke(f"{place / 'net.py'}:small", "digits", "--kind", "npk", "-o", place / "K.zarr", "--examples", 300)
    assert answer.exit_code == 0, answer.output
    assert "StoredKernel: npk, 300 × 300, float32, symmetric" in answer.output
    assert re.search(r"300 × 300 float32: \d+ tiles, of \d+ × \d+", answer.output)
    assert re.search(r"memory .* of .*\(rows kept for", answer.output)
    assert re.search(r"disk .* free\); about", answer.output)
    data = gl.data.load("digits")
    x = data.inputs(data.train_x[:300])
    torch.testing.assert_close(
        gl.open_kernel(place / "K.zarr").rows(slice(None)), gl.neural_path_kernel(network(place), x)
    )
    again = invoke(f"{place / 'net.py'}:small", "digits", "--kind", "npk", "-o", place / "K.zarr", "--examples", 300)
    assert re.search(r"(\d+) of \1 tiles are whole", again.output)


def test_rectangular_with_weights_from_a_file(place):
    trained = network(place)
    with torch.no_grad():
        trained[1].weight += 0.1
    save_file(trained.state_dict(), place / "w.safetensors")
    torch.save(trained.state_dict(), place / "w.pt")
    np.save(place / "x.npy", x := np.random.default_rng(0).normal(size=(9, 1, 8, 8)))
    for number, weights in enumerate(("w.safetensors", "w.pt")):
        out = place / f"{number}.zarr"
        options = ("--kind", "ntk", "--wrt", "1.weight", "--outputs", "3", "--weights", place / weights)
        answer = invoke(f"{place / 'net.py'}:small", "digits:test", "--against", place / "x.npy", *options, "-o", out)
        assert answer.exit_code == 0, answer.output
        data = gl.data.load("digits")
        rows, columns = data.inputs(data.test_x), torch.from_numpy(x).float()
        expected = gl.neural_tangent_kernel(trained, rows, columns, wrt=["1.weight"], outputs=3)
        torch.testing.assert_close(gl.open_kernel(out).rows(slice(None)), expected)


def test_infinite_width_needs_no_network(place):
    answer = invoke("-", "digits", "--kind", "infinite", "--depth", 3, "--examples", 20, "-o", place / "K.zarr")
    assert answer.exit_code == 0, answer.output
    assert gl.open_kernel(place / "K.zarr").about["depth"] == 3


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("net.py:small", "digits", "--kind", "npk", "--depth", "2"), "--depth has no meaning for --kind npk"),
        (("net.py:small", "digits", "--kind", "ntk", "--raw"), "--raw has no meaning for --kind ntk"),
        (("net.py:small", "digits", "--kind", "overlap", "--wrt", "a"), "--wrt has no meaning for --kind overlap"),
        (("-", "digits", "--kind", "infinite"), "write '-' for MODEL, and give --depth"),
        (("-", "digits", "--kind", "ntk"), "--kind ntk needs a network"),
        (("net.py:small", "digits:half", "--kind", "npk"), "there is no part 'half'; write digits:train"),
        (("net.py:small", "nosuch", "--kind", "npk"), "there is no data set 'nosuch'"),
        (("net.py:small", "nosuch.npy", "--kind", "npk"), "cannot be read as an array"),
        (("net.py:square", "digits", "--kind", "npk"), "does not take the examples of digits, of shape (1, 8, 8)"),
        (("net.py:small", "complex.npy", "--kind", "npk"), "dtype complex64; give real numbers"),
        (("net.py:small", "number.npy", "--kind", "npk"), "holds shape () and dtype float64"),
        (("net.py:fussy", "digits", "--kind", "npk"), "fussy needs arguments (size)"),
        (("-", "digits", "--kind", "infinite", "--depth", "2", "--weights", "w.pt"), "--weights has no meaning"),
        (("net.py:nothing", "digits", "--kind", "npk"), "returned int; make it return an nn.Module"),
        (("net.py:small", "digits", "--kind", "ntk", "--wrt", "9.weight"), "no parameter '9.weight'"),
        (("net.py:small", "digits", "--kind", "ntk", "--outputs", "10"), "output 10 does not exist"),
        (("net.py:small", "digits", "--kind", "npk", "--memory", "lots"), "write a size such as 4GB"),
        (("net.py:small", "digits", "--kind", "npk", "--weights", "net.py"), "net.py"),
    ],
)  # fmt: skip
def test_refusals(args, message, place, monkeypatch):
    monkeypatch.chdir(place)
    np.save("complex.npy", np.ones((3, 64), np.complex64))
    np.save("number.npy", np.array(3.0))
    answer = invoke(*args, "-o", "K.zarr")
    assert isinstance(answer.exception, GatelabError)  # which the command turns into one line
    assert message in str(answer.exception)
    assert not (place / "K.zarr").exists()


def test_an_interrupted_command_says_how_to_continue(place, monkeypatch):
    options = [
        f"{place / 'net.py'}:slow",
        "digits",
        "--kind",
        "overlap",
        "--examples",
        "64",
        "-o",
        str(place / "K.zarr"),
    ]
    command = [sys.executable, "-m", "gatelab", "kernel", *options]
    environment = {**os.environ, "PAUSE": "0.1"}

    def heed_interrupts() -> None:  # a job that a shell runs in the background inherits that they are ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=heed_interrupts,  # noqa: PLW1509
    ) as process:
        ledger = place / "K.zarr" / "ledger.jsonl"
        while process.poll() is None and not (ledger.exists() and ledger.stat().st_size):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)  # the gates of most examples are missing, half a second of work
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert re.search(r"stopped; [1-9] of 10 tiles are finished. Run the same command again to continue", errors)
    monkeypatch.setenv("PAUSE", "0")
    assert invoke(*options).exit_code == 0
    assert gl.open_kernel(place / "K.zarr").shape == (64, 64)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("npk", "2 dense layers: Gram matrices of the gates"),
        ("ntk", "layers: 2 with Gram matrices of inputs and signals"),
        ("overlap", "1 layers of bits, 0 of numbers"),
    ],
)
def test_a_plan_tells_what_it_would_take_and_writes_nothing(place, kind, method):
    out = place / "K.zarr"
    result = runner.invoke(
        cli.app, ["kernel", f"{place / 'net.py'}:small", "digits", "--kind", kind, "-o", str(out), "--plan"]
    )
    assert result.exit_code == 0, result.output
    assert method in result.output
    assert re.search(r"\d+ × \d+ float32: \d+ tiles", result.output)
    assert re.search(r"memory .* of .*\ndisk .*; about ", result.output)
    assert not out.exists()
