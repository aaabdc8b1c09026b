"""``python -m tests.attacks.fuzz 2000``: how many networks were tried, refused by reason, and different."""

import sys
from collections import Counter

import torch

from tests.attacks.fuzz.checks import CHECKS, refusals
from tests.attacks.outcomes import RawError, SilentlyWrongError


def main(first: int, last: int) -> None:
    """Check the seeds and print counts; a difference is printed with the network's source."""
    torch.set_default_dtype(torch.float64)
    refused: Counter[tuple[str, str]] = Counter()
    differences = 0
    for seed in range(first, last):
        try:
            refused += refusals(seed)
        except (SilentlyWrongError, RawError) as error:
            differences += 1
            print(f"{type(error).__name__}: {error}\n", flush=True)  # noqa: T201
    print(f"{last - first} networks, {len(CHECKS)} checks each; {differences} networks with a difference")  # noqa: T201
    for (what, reason), count in sorted(refused.items()):
        print(f"{what:25}{count:6}  refused for {reason}")  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] if len(sys.argv) > 2 else (0, *sys.argv[1:])))
