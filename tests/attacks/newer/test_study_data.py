"""Data and networks for a study that are not what they should be: one line, before anything is trained."""

import os
import struct
import zipfile
import zlib
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, WeightedRandomSampler

import gatelab as gl
from gatelab.data.objects import gathered
from gatelab.data.places import open_data
from gatelab.models.from_file import load_weights
from tests.attacks.outcomes import ChangedStateError, SilentlyWrongError, refusal

pytestmark = pytest.mark.attack("study")

X, Y = np.linspace(-1, 1, 60).reshape(20, 3), np.arange(20) % 2


class Items(Dataset):
    """A data set of given items; its length can be wrong."""

    def __init__(self, items, length=None):
        self.items, self.length = items, length

    def __len__(self):
        return len(self.items) if self.length is None else self.length

    def __getitem__(self, place):
        return self.items[place]


class Endless(IterableDataset):
    """A stream that is empty, or breaks."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        for item in self.items:
            if isinstance(item, Exception):
                raise item
            yield item


class Unsized(Dataset):
    """A data set without a length."""

    def __getitem__(self, place):
        return X[place], Y[place]


def frame(**changes):
    return pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, **changes})


PAIRS = [(x, y) for x, y in zip(X, Y, strict=True)]
DATA = {
    "nothing": None,
    "a number": 7,
    "x alone": X,
    "three arrays": (X, Y, Y),
    "an empty pair": ((), ()),
    "no labels": (X, None),
    "one label": (X, 1),
    "fewer labels": (X, Y[:15]),
    "more labels": (X, np.r_[Y, Y]),
    "labels in two lengths": (X, [[0], [1, 0]] * 10),
    "labels of objects": (X, [{}] * 20),
    "labels that are missing": (X, [None, "a"] * 10),
    "labels with NaN": (X, np.r_[np.nan, Y[1:]]),
    "labels with infinity": (X, np.r_[np.inf, Y[1:]]),
    "labels in four axes": (X, np.zeros((20, 2, 2, 2))),
    "labels on the meta device": (X, torch.zeros(20, device="meta")),
    "sparse labels": (X, torch.zeros(20).to_sparse()),
    "a scalar x": (1.0, Y),
    "x of one axis": (X[:, 0], Y),
    "x in two lengths": ([[1.0, 2.0], [1.0]] * 10, Y),
    "x of texts": ([["a", "b"]] * 20, Y),
    "x of objects": (np.full((20, 2), {}, object), Y),
    "complex x": (X * 1j, Y),
    "x with NaN": (np.where(X > 0.9, np.nan, X), Y),
    "x on the meta device": (torch.zeros(20, 3, device="meta"), Y),
    "sparse x": (torch.zeros(20, 3).to_sparse(), Y),
    "x without features": (np.zeros((20, 0)), Y),
    "one example": (X[:1], Y[:1]),
    "no examples": (X[:0], Y[:0]),
    "a mapping without y": {"x": X},
    "a mapping without examples": {"x": None, "y": Y},
    "a data set of nothing": Items([]),
    "a data set of single tensors": Items(list(X)),
    "a data set of texts": Items([("a", 1)] * 20),
    "a data set in two shapes": Items([*PAIRS[:10], *((x[:2], y) for x, y in PAIRS[10:])]),
    "a data set with labels in two shapes": Items([*PAIRS[:10], *((x, [y, y]) for x, y in PAIRS[10:])]),
    "a data set that claims to be longer": Items(PAIRS, 30),
    "a data set without a length": Unsized(),
    "a data set whose items are None": Items([None] * 20),
    "a stream of nothing": Endless([]),
    "a stream that breaks": Endless([*PAIRS[:3], OSError("the disk is gone")]),
    "a loader of nothing": DataLoader(Items([])),
    "a loader of a stream of nothing": DataLoader(Endless([])),
    "a loader in two shapes": DataLoader(Items([*PAIRS[:10], *((x[:2], y) for x, y in PAIRS[10:])]), 1),
    "a loader that draws": DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)),
                                      sampler=WeightedRandomSampler([1.0] * 20, 20)),
    "a loader whose collation fails": DataLoader(Items(PAIRS), collate_fn=lambda _: 1 / 0),
    "a loader of batches of one tensor": DataLoader(Items(PAIRS), collate_fn=lambda batch: torch.zeros(len(batch))),
    "a frame without its label": frame(),
    "a frame with a text": frame(c=["a"] * 20),
    "a frame with dates": frame(c=pandas.Timestamp(0)),
    "a frame with a category": frame(c=pandas.Categorical(["a", "b"] * 10)),
    "a frame with NaN": frame(c=np.nan),
    "a frame with missing whole numbers": frame(c=pandas.array([None, 1] * 10, dtype="Int64")),
    "a frame with one name twice": pandas.DataFrame(np.c_[X, Y], columns=["a", "b", "b", "y"]),
    "a frame with two labels": pandas.DataFrame(np.c_[X[:, :2], Y, Y], columns=["a", "b", "y", "y"]),
    "a frame of labels alone": pandas.DataFrame({"y": Y}),
    "a frame of nothing": pandas.DataFrame(),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA)
def test_data_that_cannot_be_used(name):
    label = None if name == "a frame without its label" else "y"
    refusal(lambda: gathered(DATA[name], label=label))


@pytest.mark.parametrize("name", ["fewer labels", "more labels", "no labels", "x of one axis", "x without features"])
def test_test_data_that_cannot_be_used(name):
    refusal(lambda: gathered((X, Y), DATA[name]))


def test_half_precision_labels_are_labels():
    data = gathered((X, torch.tensor(Y).bfloat16()))
    if set(data.train_y.tolist()) != {0.0, 1.0}:
        raise SilentlyWrongError(f"{data.train_y}")


def test_every_label_stays_with_its_example():
    data = gathered((np.arange(40.0).reshape(20, 2), np.arange(20.0)))
    for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
        if not torch.equal(x[:, 0], 2 * y):
            raise SilentlyWrongError("labels have moved")


MODELS = {
    "a number": 3,
    "a list of layers": [nn.Linear(3, 2)],
    "a factory that needs an argument": lambda width: nn.Linear(3, width),
    "a factory that fails": lambda: 1 / 0,
    "a factory that returns None": lambda: None,
    "a factory that returns a class": lambda: nn.Linear,
    "a network without gates": nn.Linear(3, 2),
    "a network for other data": nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)),
    "a network with one output for two classes": nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
    "a network with NaN": None,
    "a place without a colon": "net.py",
    "a place that is not there": "nowhere.py:net",
    "an empty place": "",
    "a place of a colon": ":",
    "a place with a zero byte": "net\0.py:net",
    "a long place": "n" * 5000 + ".py:net",
}


@pytest.mark.parametrize("name", MODELS)
def test_networks_that_cannot_be_studied(name, single_precision, tmp_path):
    model = MODELS[name]
    if name == "a network with NaN":
        model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        model[0].weight.data[0, 0] = float("nan")
    settings = {"epochs": 1, "runs": 2, "kernels": "off", "progress": False}
    refusal(lambda: gl.study(model, (X, Y), out=tmp_path / "run", **settings))
    if (tmp_path / "run").exists():
        raise ChangedStateError("a run was begun")


SETTINGS = {
    "an unknown setting": {"speed": 11},
    "epochs of zero": {"epochs": 0},
    "epochs that are NaN": {"epochs": float("nan")},
    "epochs of text": {"epochs": "many"},
    "runs of a fraction": {"runs": 1.5},
    "an infinite learning rate": {"learning_rate": float("inf")},
    "a negative learning rate": {"learning_rate": -1.0},
    "an unknown loss": {"loss": "joy"},
    "an unknown metric": {"metric": "luck"},
    "a layer that is not there": {"layers": ["nothing"]},
    "weights for a network at hand": {"weights": "weights.pt"},
    "a batch of zero": {"batch_size": 0},
    "a batch of text": {"batch_size": "all"},
    "kernels of another kind": {"kernels": "popcorn"},
    "a number as augmentation": {"augment": 3},
    "an augmentation that is not there": {"augment": "nowhere.py:flip"},
    "an augmentation that changes the shape": {"augment": lambda x: x[:, :2]},
    "an augmentation that fails": {"augment": lambda _: 1 / 0},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_make_no_sense(name, single_precision, tmp_path):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    settings = {"epochs": 1, "runs": 2, "kernels": "off", "progress": False, **SETTINGS[name]}
    refusal(lambda: gl.study(model, (X, Y), out=tmp_path / "run", **settings))


def _png(width: int, height: int) -> bytes:
    """The header of an image of that size, and nothing behind it."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunk = b"IHDR" + header
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(header)) + chunk + struct.pack(">I", zlib.crc32(chunk))


def _folder(root, content: bytes | None):
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(root / name / "a.png")
        if content is not None:
            (root / name / "b.png").write_bytes(content)
    return root


IMAGES = {
    "a bomb of pixels": _png(60_000, 60_000),
    "a large image": _png(12_000, 12_000),
    "a header alone": _png(4, 4),
    "a broken chunk": _png(4, 4)[:-1] + b"x" + b"\x00\x00\x00\x04IDAT1234xxxx",
    "no width": _png(0, 4),
    "no image": b"GIF8",
    "nothing": b"",
    "a header of TIFF": b"II*\x00\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
    "a header of WebP": b"RIFF\xff\xff\xff\xffWEBPVP8 ",
}


@pytest.mark.filterwarnings("ignore:Image size:PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("name", IMAGES)
def test_images_of_a_stranger(name, tmp_path):
    refusal(lambda: open_data(str(_folder(tmp_path / "images", IMAGES[name]))))


@pytest.mark.parametrize("size", [0, -1, 10**6], ids=str)
def test_images_of_an_odd_size(size, tmp_path):
    refusal(lambda: open_data(str(_folder(tmp_path / "images", None)), image_size=size))


def test_a_folder_that_contains_itself(tmp_path):
    root = _folder(tmp_path / "images", None)
    (root / "cat" / "again").symlink_to(root, target_is_directory=True)
    (root / "cat" / "dangling.png").symlink_to(root / "nowhere.png")
    assert "dangling.png" in refusal(lambda: open_data(str(root)))


def test_a_pipe_among_the_images(tmp_path):
    """Nobody writes to it; a reader would wait for ever."""
    root = _folder(tmp_path / "images", None)
    os.mkfifo(root / "cat" / "b.png")
    assert "b.png" in refusal(lambda: open_data(str(root)))


def _npz(place, **entries: bytes):
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return place


def _npy_header(shape: str, kind: str = "<f8") -> bytes:
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return np.lib.format.magic(1, 0) + len(text).to_bytes(2, "little") + text


NPZ = {
    "an array beyond any machine": {"x": _npy_header("(1000000000000, 1000)"), "y": _npy_header("(2,)")},
    "a cut array": {"x": _npy_header("(20, 3)"), "y": _npy_header("(20,)", "<i8")},
    "objects": {"x": _npy_header("(1,)", "|O") + b"cos\nsystem\n", "y": _npy_header("(1,)")},
    "a header that is a programme": {"x": _npy_header("__import__('os').getpid()"), "y": _npy_header("(2,)")},
    "a negative shape": {"x": _npy_header("(-1, 3)"), "y": _npy_header("(2,)")},
    "no arrays": {},
    "texts": {"x": b"hello", "y": b"world"},
}


@pytest.mark.parametrize("name", NPZ)
def test_archives_of_a_stranger(name, tmp_path):
    refusal(lambda: open_data(str(_npz(tmp_path / "data.npz", **NPZ[name]))))


def test_an_archive_that_is_a_bomb(tmp_path, monkeypatch):
    """A megabyte of zeros, packed a thousandfold, on a machine with less memory than that."""
    content = _npy_header("(20, 50000)", "<i1") + bytes(10**6)
    place = _npz(tmp_path / "data.npz", x=content, y=_npy_header("(20,)", "<i8") + bytes(160), spare=content)
    monkeypatch.setattr("gatelab.data.user_data.psutil.virtual_memory", lambda: SimpleNamespace(available=10**6))
    assert "memory" in refusal(lambda: open_data(str(place)))


STATES = {
    "numbers as names": {1: torch.zeros(2), 2: torch.zeros(2)},
    "nothing": {},
    "numbers in place of tensors": {"weight": 1.0},
    "a list": [torch.zeros(2)],
    "a tensor": torch.zeros(2),
    "sparse tensors": {"weight": torch.zeros(2, 3).to_sparse(), "bias": torch.zeros(2)},
    "complex tensors": {"weight": torch.zeros(2, 3) * 1j, "bias": torch.zeros(2)},
    "NaN": {"weight": torch.full((2, 3), torch.nan), "bias": torch.zeros(2)},
    "half a network": {"weight": torch.zeros(2, 3)},
    "another shape": {"weight": torch.zeros(3, 2), "bias": torch.zeros(2)},
}


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("name", STATES)
def test_weights_of_another_network(name, tmp_path):
    torch.save(STATES[name], tmp_path / "weights.pt")
    refusal(lambda: load_weights(nn.Linear(3, 2), tmp_path / "weights.pt"))


@pytest.mark.parametrize("kept", [0, 1, 100, 600, -1])
def test_weights_that_are_cut(kept, tmp_path):
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "whole.pt")
    (tmp_path / "weights.pt").write_bytes((tmp_path / "whole.pt").read_bytes()[:kept])
    refusal(lambda: load_weights(nn.Linear(3, 2), tmp_path / "weights.pt"))
