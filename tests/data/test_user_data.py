"""A user's data, from Python and from files: what is read, and what is refused with which remedy."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from gatelab.data import load
from gatelab.data.objects import gathered
from gatelab.data.places import open_data
from gatelab.errors import DataError, InputError

X = np.arange(60, dtype=np.float64).reshape(20, 3) / 10
Y = np.arange(20) % 3
SET = TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))


def first_part(data):
    return data.train_x.double().numpy(), data.train_y.numpy()


@pytest.mark.parametrize(
    "train",
    [
        (X, Y),
        (torch.from_numpy(X), torch.from_numpy(Y)),
        (X.tolist(), Y.tolist()),
        {"x": X, "y": Y},
        SET,
        DataLoader(SET, batch_size=7),
        DataLoader(SET, batch_size=7, shuffle=True),  # gatelab orders batches itself
        DataLoader(SET, batch_size=7, sampler=SubsetRandomSampler(list(range(20)))),
        Subset(SET, list(range(20))),
        pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "label": Y}),
    ],
    ids=lambda train: type(train).__name__,
)
def test_the_same_examples_whatever_holds_them(train):
    data = gathered(train, train, label="label")
    x, y = first_part(data)
    np.testing.assert_allclose(x, X)
    assert y.tolist() == Y.tolist()


def test_without_a_test_part_a_fifth_is_held_out_and_it_is_said():
    data = gathered((X, Y))
    assert (len(data.train_x), len(data.test_x)) == (16, 4)
    whole = torch.cat([data.train_x, data.test_x]).sort(dim=0).values
    np.testing.assert_allclose(whole.numpy(), X)
    assert "a random fifth, 4 examples, is held out" in data.remarks[0]
    assert torch.equal(gathered((X, Y)).test_x, data.test_x)


def test_labels_of_every_kind():
    named = gathered((X, np.array(["cat", "dog"] * 10)), (X[:2], np.array(["dog", "cat"])))
    assert (named.classes, named.train_y[:2].tolist(), named.test_y.tolist()) == (("cat", "dog"), [0, 1], [1, 0])
    signs = gathered((X, np.where(Y == 0, -1, 1)), (X[:3], [1, -1, 1]))
    assert signs.test_y.tolist() == [1, 0, 1]
    one_hot = gathered((X, np.eye(3)[Y]), (X[:3], np.eye(3)[Y[:3]]))
    assert one_hot.train_y.tolist() == Y.tolist()
    real = gathered((X, X[:, :2]), (X[:4], X[:4, :2]))
    assert real.train_y.is_floating_point()
    assert tuple(real.train_y.shape) == (20, 2)
    assert gathered((X, Y == 0), (X, Y == 0)).train_y.tolist() == (Y == 0).astype(int).tolist()


def test_bytes_stay_bytes_until_they_are_used():
    pixels = np.full((10, 2, 2), 51, dtype=np.uint8)
    data = gathered((pixels, np.arange(10) % 2), (pixels, np.arange(10) % 2))
    assert data.train_x.dtype == torch.uint8
    assert data.inputs(data.train_x).unique().tolist() == pytest.approx([0.2])


class Changing(TensorDataset):
    def __getitem__(self, index):
        x, y = super().__getitem__(index)
        return x + torch.rand(()), y


class Stream(IterableDataset):
    def __init__(self, shuffles):
        self.shuffles, self.start = shuffles, 0

    def __iter__(self):
        self.start += self.shuffles
        return iter([(X[(place + self.start) % 20], int(Y[place])) for place in range(20)])


def test_a_stream_in_a_fixed_order_is_read():
    np.testing.assert_allclose(first_part(gathered(Stream(False), Stream(False)))[0], X)


broken = X.copy()
broken[4, 1] = np.nan


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (Changing(*SET.tensors), "example 0 differs each time it is read, so the data set augments.*pass them as "
        "augment="),
        (DataLoader(Changing(*SET.tensors)), "differs each time it is read"),
        (Stream(True), "shuffles or augments. Gates are compared"),
        (DataLoader(Stream(True), batch_size=4), "shuffles or augments"),
        (DataLoader(SET, sampler=WeightedRandomSampler([1.0] * 20, 20)), "WeightedRandomSampler.*metric=\"balanced\""),
        ((broken, Y), "1 training examples hold NaN or infinite values, first example 4 at place 1"),
        ((X, np.where(Y == 1, np.nan, 0.5)), "training labels are NaN or infinite, the first at example 1"),
        ((X, Y[:7]), "20 training examples, 7 labels"),
        ((X[:, 0], Y), r"shape \(20,\); give one row for each example"),
        ((X.astype(object), Y), "does not hold numbers"),
        (TensorDataset(torch.from_numpy(X)), "each must be"),
        ({"a": X}, "the mapping has a; give x and y"),
        (7, "train is a int; give"),
        (pd.DataFrame({"a": X[:, 0], "city": ["x"] * 20, "label": Y}), "city do not hold numbers"),
        (pd.DataFrame({"a": X[:, 0], "target": Y}), "there is no column 'label'; the columns are a, target"),
    ],
)  # fmt: skip
def test_unusable_data_are_refused_with_the_remedy(train, message, unchecked):
    with pytest.raises(InputError, match=message):
        gathered(train, (X, Y) if isinstance(train, tuple) else None, label="label")


def test_parts_must_fit_each_other(unchecked):
    with pytest.raises(InputError, match=r"training examples have shape \(3,\), test examples \(2,\)"):
        gathered((X, Y), (X[:, :2], Y))
    with pytest.raises(InputError, match="test labels emu do not occur in training"):
        gathered((X, ["cat", "dog"] * 10), (X[:1].repeat(2, 0), ["dog", "emu"]))
    with pytest.raises(InputError, match="has a test part of its own"):
        gathered(load("digits"), (X, Y))


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("whole.npz", x=X, y=Y)
    np.savez("parts.npz", x_train=X, y_train=Y, x_test=X[:4], y_test=Y[:4])
    np.save("x.npy", X)
    np.save("y.npy", Y)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.array(["p", "q", "r"])[Y])
    frame.to_csv("table.csv", index=False)
    frame.to_parquet("table.parquet")
    (tmp_path / "mine.py").write_text(
        "import numpy as np\ndef four():\n    d = np.load('parts.npz')\n"
        "    return d['x_train'], d['y_train'], d['x_test'], d['y_test']\n"
    )
    assert len(open_data("whole.npz").train_x) == 16
    for place in ("parts.npz", "mine.py:four"):
        data = open_data(place)
        np.testing.assert_allclose(first_part(data)[0], X)
        assert data.test_y.tolist() == Y[:4].tolist()
    assert len(open_data("x.npy", label="y.npy").test_x) == 4
    for place in ("table.csv", "table.parquet"):
        data = open_data(place, test=place, label="kind")
        np.testing.assert_allclose(first_part(data)[0], X)
        assert data.classes == ("p", "q", "r")


def test_an_image_folder(tmp_path):
    for part, count in (("train", 3), ("test", 2)):
        for name, grey in (("cat", 10), ("dog", 200)):
            (tmp_path / part / name).mkdir(parents=True)
            for place in range(count):
                Image.new("L", (4, 6), grey + place).save(tmp_path / part / name / f"{place}.png")
    data = open_data(str(tmp_path))
    assert (tuple(data.train_x.shape), tuple(data.test_x.shape)) == ((6, 1, 6, 4), (4, 1, 6, 4))
    assert (data.classes, data.train_y.tolist()) == (("cat", "dog"), [0, 0, 0, 1, 1, 1])
    assert data.train_x[:, 0, 0, 0].tolist() == [10, 11, 12, 200, 201, 202]
    Image.new("RGB", (5, 5), (1, 2, 3)).save(tmp_path / "train" / "cat" / "9.png")
    with pytest.raises(InputError, match=r"5 × 5 pixels.*image_size=32"):
        open_data(str(tmp_path))
    assert tuple(open_data(str(tmp_path), image_size=3).train_x.shape) == (7, 3, 3, 3)


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        ("nothing", InputError, "there is no data set or file 'nothing'"),
        ("x.npy", InputError, "--label labels.npy"),
        ("odd.npz", DataError, "holds a, b; name its arrays x and y"),
        ("damaged.npz", DataError, "cannot be read as arrays"),
        ("empty", DataError, "holds no images in class folders"),
        ("mine.py:fails", InputError, r"fails\(\) failed: ValueError: no"),
        ("mine.py:nothing", InputError, "has no 'nothing'"),
        ("notes.txt", InputError, "write a function that returns examples"),
        ("table.csv", InputError, "name the column with the labels"),
    ],
)
def test_files_that_cannot_be_used(place, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("odd.npz", a=X, b=Y)
    np.save("x.npy", X)
    (tmp_path / "damaged.npz").write_bytes(b"PK nonsense")
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n3,4\n")
    (tmp_path / "mine.py").write_text("def fails():\n    raise ValueError('no')\n")
    with pytest.raises(error, match=message):
        open_data(place)
