"""Data sets: digits, the MNIST family, CIFAR; found, fetched, verified. Sources on a ring: NLGP and single pulse."""

from gatelab.data.catalogue import ENTRIES, Entry
from gatelab.data.dataset import Dataset, jpeg_archive, load, names
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
    "GaussianClone",
    "SinglePulse",
    "TwoClasses",
    "circulant",
    "data_folders",
    "fetch",
    "find",
    "jpeg_archive",
    "load",
    "names",
    "read_whole",
]
