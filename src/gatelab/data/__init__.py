"""Data sets from files (digits, the MNIST family, CIFAR), and generated data on a circle, a ring or a torus."""

from gatelab.data.circle_data import circle
from gatelab.data.dataset import Dataset, load, names
from gatelab.data.fashion_clusters import modified_fashion
from gatelab.data.fetching import fetch
from gatelab.data.nlgp import NLGP, GaussianClone
from gatelab.data.single_pulse import SinglePulse

__all__ = [
    "NLGP",
    "Dataset",
    "GaussianClone",
    "SinglePulse",
    "circle",
    "fetch",
    "load",
    "modified_fashion",
    "names",
]
