"""Read files into tensors: IDX, CIFAR's pickles, and JPEG images in a tar archive."""

import hashlib
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from PIL import Image
from safetensors.torch import save
from torch import Tensor

from gatelab.data.catalogue import CIFAR10, JPEG_SHA256, Entry
from gatelab.data.folders import alone_in, cache_folder, find, read_whole
from gatelab.errors import DataError
from gatelab.work.files import read_file, reason
from gatelab.work.tensors import read_tensors, write_tensors

Parts = tuple[UInt8[Tensor, "n c h w"], Int64[Tensor, " n"], UInt8[Tensor, "m c h w"], Int64[Tensor, " m"]]


def read_idx_set(entry: Entry, root: str | Path | None) -> Parts:
    """Read images and labels of MNIST and its relatives."""
    paths = find(entry, root)
    images, labels, test_images, test_labels = (_idx(read_whole(paths[f.name], f), f.name) for f in entry.files)
    return images.unsqueeze(1), labels.long(), test_images.unsqueeze(1), test_labels.long()


def _idx(content: bytes, name: str) -> Tensor:
    """Read an IDX array: two zero bytes, the type (8: unsigned bytes), the number of axes, their sizes, the entries."""
    if content[:3] != b"\x00\x00\x08":
        raise DataError(f"{name} is not an IDX file of bytes: it starts with {content[:4].hex()}")
    axes = content[3]
    shape = np.frombuffer(content, ">i4", axes, 4).tolist()
    return torch.from_numpy(np.frombuffer(content, np.uint8, -1, 4 + 4 * axes).reshape(shape).copy())


def read_cifar(entry: Entry, root: str | Path | None) -> Parts:
    """Read images and labels of CIFAR from its pickles, whose checksums are verified before they are opened."""
    paths = find(entry, root)
    images: dict[bool, list[np.ndarray]] = {False: [], True: []}
    labels: dict[bool, list[int]] = {False: [], True: []}
    for file in entry.files:
        batch = _Restricted(io.BytesIO(read_whole(paths[file.name], file)), encoding="bytes").load()
        test = file.name.startswith("test")
        images[test].append(np.asarray(batch[b"data"], np.uint8).reshape(-1, 3, 32, 32))
        labels[test] += batch.get(b"fine_labels") or batch[b"labels"]
    train, test = (torch.from_numpy(np.concatenate(images[part])) for part in (False, True))
    return train, torch.tensor(labels[False]), test, torch.tensor(labels[True])


class _Restricted(pickle.Unpickler):
    """An unpickler that builds only numpy arrays and plain containers."""

    _allowed = (
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("_codecs", "encode"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._allowed:
            raise DataError(f"a data file asks for {module}.{name}, which no data set needs; it was not opened")
        return super().find_class(module, name)


def read_jpeg_archive(path: Path) -> Parts:
    """Read CIFAR-10 from its JPEG archive; decode it once, then keep it in the user's cache."""
    kept = cache_folder() / f"cifar10-jpeg-{JPEG_SHA256[:12]}.safetensors"
    if not kept.is_file():
        with alone_in(kept.parent):
            if not kept.is_file():  # another process may have made it meanwhile
                write_tensors(kept, save(_decode(_verified(path))))
    tensors, _ = read_tensors(kept, "remove it, and it is made again")
    return tensors["train_x"], tensors["train_y"], tensors["test_x"], tensors["test_y"]


def _verified(path: Path) -> Path:
    try:
        digest = hashlib.sha256(read_file(path)).hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}; make it readable, or download it again") from error
    if digest != JPEG_SHA256:
        raise DataError(f"{path}: expected SHA-256 {JPEG_SHA256}, found {digest}: it is corrupt; download it again")
    return path


def _decode(path: Path) -> dict[str, Tensor]:
    images: dict[str, list[tuple[str, int, np.ndarray]]] = {"train": [], "test": []}
    with tarfile.open(path, "r|xz") as archive:
        for member in archive:
            pieces = Path(member.name).parts
            content = archive.extractfile(member)
            if content is None or len(pieces) < 3 or pieces[-3] not in images:
                continue
            label = CIFAR10.classes.index(pieces[-2])
            pixels = np.asarray(Image.open(io.BytesIO(content.read())).convert("RGB"))
            images[pieces[-3]].append((member.name, label, pixels))
    tensors = {}
    for part, decoded in images.items():
        decoded.sort(key=lambda image: image[0])  # the order of an archive is arbitrary
        pixels = np.stack([image[2] for image in decoded]).transpose(0, 3, 1, 2)
        tensors[f"{part}_x"] = torch.from_numpy(pixels.copy())
        tensors[f"{part}_y"] = torch.tensor([image[1] for image in decoded])
    return tensors
