"""Kernels on disk and directories of version 0.1 that were changed: named, never used, computed again on request."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import gatelab as gl
from gatelab.errors import StoreError
from gatelab.kernels import PathKernel, compute, open_kernel
from gatelab.lab.runs import Run
from gatelab.work import Here
from tests.attacks.outcomes import SilentlyWrongError, refusal
from tests.attacks.test_damaged_files import cut, flip, overwrite, replace, zero

pytestmark = pytest.mark.attack("damaged run files")
OLD = Path(__file__).parents[1] / "data_of_0_1"


def network(seed: int = 0) -> torch.nn.Module:
    return gl.models.mlp((5, 8, 3), bias=True, generator=torch.Generator().manual_seed(seed))


def make(path: Path, seed: int = 0, **options):
    x = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    return compute(PathKernel(network(seed)), x, store=path, tile=10, executor=Here(1), **options)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    torch.set_default_dtype(torch.float32)
    made = make(tmp_path_factory.mktemp("whole") / "K.zarr")
    torch.set_default_dtype(torch.float64)
    return made.path


@pytest.fixture
def store(made, tmp_path, single_precision):
    return Path(shutil.copytree(made, tmp_path / "K.zarr"))


def strip(path: Path) -> None:
    """Remove the checksum of the metadata: a store of version 0.1 has none, and no version either."""
    record = json.loads((path / "zarr.json").read_text())
    del record["attributes"]["gatelab"]["checksum"]
    (path / "zarr.json").write_text(json.dumps(record))


def line_of_another_store(path: Path) -> None:
    make(path.with_name("other.zarr"), seed=1)
    for name in ("ledger.jsonl", "c/1/0"):
        shutil.copy(path.with_name("other.zarr") / name, path / name)


METADATA = {
    "the number of rows": replace("zarr.json", "20", "21"),
    "the size of tiles": replace("zarr.json", '"chunk_shape": [\n        10', '"chunk_shape": [\n        20'),
    "the digest of the model": replace("zarr.json", '"model": "', '"model": "0'),
    "the dtype": replace("zarr.json", '"float32"', '"float64"'),
    "the fill value": replace("zarr.json", '"NaN"', '"0.0"'),
    "the byte order": replace("zarr.json", '"little"', '"big"'),
    "its symmetry": replace("zarr.json", '"symmetric": true', '"symmetric": false'),
    "cut short": cut("zarr.json", 0.5),
    "empty": cut("zarr.json", 0.0),
    "zeros": zero("zarr.json", 0.0),
    "a list": overwrite("zarr.json", "[]"),
    "nested too deeply": overwrite("zarr.json", '{"a":' * 50_000),
    "no checksum": strip,
    "no checksum, and no tile yet": lambda path: (strip(path), (path / "ledger.jsonl").write_bytes(b"")),
    "the name of its checksum": replace("zarr.json", '"checksum": "sha256:', '"checksim": "sha25x:'),
}
OTHERS = {
    "a checksum in the ledger": (replace("ledger.jsonl", '"crc32c": ', '"crc32c": 1'), "ledger.jsonl line 1"),
    "a tile's name in the ledger": (replace("ledger.jsonl", '"tile": [1, 0]', '"tile": [1, 1]'), "ledger.jsonl line"),
    "a bit of the ledger": (flip("ledger.jsonl", 0.5), "ledger.jsonl line"),
    "the ledger of another store": (line_of_another_store, "ledger.jsonl line 1"),
    "a bit of a tile": (flip("c/1/0", 0.5), "tile 1, 0 │ damaged: is damaged, or of another kernel: its checksum"),
    "a tile of zeros": (zero("c/1/0", 0.0), "tile 1, 0"),
    "a tile that is gone": (lambda path: (path / "c/1/0").unlink(), "tile 1, 0"),
}


@pytest.mark.parametrize("name", METADATA)
def test_changed_metadata_are_refused_and_redone_on_request(name, store, command):
    entries = open_kernel(store)[:, :]
    METADATA[name](store)
    checked = command("verify", store)
    if checked.code != 1 or "zarr.json" not in checked.out:
        raise SilentlyWrongError(f"verify says {checked.code}: {checked.out}")
    for use in (open_kernel, make):
        assert "zarr.json is damaged" in refusal(lambda use=use: use(store))
    assert make(store, redo_damaged=True)[:, :].tobytes() == entries.tobytes()
    assert (store.with_name("K.zarr.damaged") / "c/1/0").exists()


@pytest.mark.parametrize("name", OTHERS)
def test_changed_tiles_and_lines_are_computed_again(name, store, command):
    entries = open_kernel(store)[:, :]
    harm, named = OTHERS[name]
    harm(store)
    checked = command("verify", store)
    if checked.code != 1 or named not in " ".join(checked.out.split()):
        raise SilentlyWrongError(f"verify says {checked.code}: {checked.out}")
    with pytest.raises(StoreError, match=r"not finished|tile 1, 0"):
        open_kernel(store).rows(slice(None))
    assert make(store)[:, :].tobytes() == entries.tobytes()


@pytest.mark.parametrize("name", ["run", "kernel.zarr"])
def test_directories_of_0_1_have_no_checksums_and_are_whole(name, command):
    checked = command("verify", OLD / name)
    assert checked.code == 0
    assert "written without checksums" in checked.out


def test_a_run_of_0_1_goes_on_with_checksums(tmp_path, command):
    run = Path(shutil.copytree(OLD / "run", tmp_path / "run"))
    old = (run / "journal.jsonl").read_bytes()
    Run.read(run).add_result("w = 64", {"errors": [0.4, 0.3, 0.4, 0.2]}, 1.0)
    assert command("verify", run).code == 0
    assert Run.read(run).started == "2026-11-16T19:06:32+00:00"
    new = (run / "journal.jsonl").read_bytes()
    # The new line is protected, and behind it no line without a checksum is taken for one of version 0.1.
    for content in (new.replace(b"[0.4, 0.3", b"[0.1, 0.3"), new + old):
        (run / "journal.jsonl").write_bytes(content)
        assert command("verify", run).code == 1
        assert "journal.jsonl, line" in refusal(Run.read(run).results)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"cell": "w = 16"', '"cell": 16'),
        ('"seconds": 19.142', '"seconds": null'),
        ('"result"', '"results"'),
        ("{", ""),
    ],
    ids=["a number for a name", "no seconds", "another field", "no object"],
)
def test_a_line_of_0_1_with_wrong_fields(old, new, tmp_path):
    run = Path(shutil.copytree(OLD / "run", tmp_path / "run"))
    replace("journal.jsonl", old, new)(run)
    assert "journal.jsonl, line 1" in refusal(Run.read(run).results)


SIZES = "20,\n    20"


@pytest.mark.parametrize(
    ("old", "new"),
    [(SIZES, "20, -20"), (SIZES, "2e9, 2e9"), (SIZES, '"a", "b"'), ('"float64"', '"object"'), ("true", '"yes"')],
    ids=["negative sizes", "fractions for sizes", "text for sizes", "objects", "text for a truth value"],
)
def test_metadata_of_0_1_with_wrong_types(old, new, tmp_path, command):
    path = Path(shutil.copytree(OLD / "kernel.zarr", tmp_path / "K.zarr"))
    replace("zarr.json", old, new)(path)
    assert "is not a kernel of gatelab" in refusal(lambda: open_kernel(path))
    assert command("verify", path).code == 2


def test_a_store_that_claims_to_be_enormous_takes_no_time(tmp_path):
    path = Path(shutil.copytree(OLD / "kernel.zarr", tmp_path / "K.zarr"))
    replace("zarr.json", SIZES, "2000000000000, 2000000000000")(path)
    assert "is not finished" in refusal(lambda: open_kernel(path))
