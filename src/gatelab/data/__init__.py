"""Data sets: digits, the MNIST family, CIFAR; found, fetched, verified. Sources on a ring: NLGP and single pulse."""

from gatelab.data.catalogue import ENTRIES, Entry
from gatelab.data.circle_data import Regression, circle, circle_target
from gatelab.data.dataset import Dataset, Examples, jpeg_archive, load, names
from gatelab.data.fashion_clusters import modified_fashion
from gatelab.data.fetching import fetch
from gatelab.data.folders import data_folders, find, read_whole
from gatelab.data.nlgp import NLGP, GaussianClone
from gatelab.data.ring import TwoClasses, circulant
from gatelab.data.single_pulse import SinglePulse

__all__ = [
    "ENTRIES",
    "NLGP",
    "Dataset",
    "Entry",
    "Examples",
    "GaussianClone",
    "Regression",
    "SinglePulse",
    "TwoClasses",
    "circle",
    "circle_target",
    "circulant",
    "data_folders",
    "fetch",
    "find",
    "jpeg_archive",
    "load",
    "modified_fashion",
    "names",
    "read_whole",
]
