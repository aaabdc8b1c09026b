"""Data sets: digits, the MNIST family, CIFAR; found, fetched, verified."""

from gatelab.data.catalogue import ENTRIES, Entry
from gatelab.data.dataset import Dataset, jpeg_archive, load, names
from gatelab.data.fetch import fetch
from gatelab.data.find import data_folders, find, read_whole

__all__ = [
    "ENTRIES",
    "Dataset",
    "Entry",
    "data_folders",
    "fetch",
    "find",
    "jpeg_archive",
    "load",
    "names",
    "read_whole",
]
