"""Data sets: digits, the MNIST family, CIFAR; found, fetched, verified."""

from gatelab.data.catalogue import ENTRIES, Entry
from gatelab.data.dataset import Dataset, jpeg_archive, load, names
from gatelab.data.fetching import fetch
from gatelab.data.folders import data_folders, find, read_whole

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
