"""Data sets: digits, the MNIST family, CIFAR; found, fetched, verified."""

from gatelab.data.catalogue import ENTRIES, Entry
from gatelab.data.circle import Regression, circle, circle_target
from gatelab.data.dataset import Dataset, Examples, jpeg_archive, load, names
from gatelab.data.fetching import fetch
from gatelab.data.folders import data_folders, find, read_whole
from gatelab.data.modified_fashion import modified_fashion

__all__ = [
    "ENTRIES",
    "Dataset",
    "Entry",
    "Examples",
    "Regression",
    "circle",
    "circle_target",
    "data_folders",
    "fetch",
    "find",
    "jpeg_archive",
    "load",
    "modified_fashion",
    "names",
    "read_whole",
]
