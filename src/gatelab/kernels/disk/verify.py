"""Checks every part of a kernel on disk against its checksum."""

from pathlib import Path

from gatelab.errors import StoreError
from gatelab.kernels.disk.store import KERNEL_FORMAT, KernelStore
from gatelab.work.checksums import Condition, Part


def check_store(path: Path) -> list[Part]:
    """Return the condition of the metadata, of each line of the ledger, and of each tile that the ledger lists.

    Raises:
        StoreError: there is no kernel.
    """
    found = KERNEL_FORMAT.record_condition(path)
    if found is Condition.DAMAGED:
        return [Part(KERNEL_FORMAT.record, "", found, "does not match its checksum")]
    store = KernelStore.open(path)
    lines = [Part("ledger.jsonl", f"line {number}", condition, fault) for number, condition, fault in store.ledger()]
    tiles = [_tile(store, tile) for tile in sorted(store.finished)]
    return [Part(KERNEL_FORMAT.record, "", found), *lines, *tiles]


def _tile(store: KernelStore, tile: tuple[int, int]) -> Part:
    name = f"{tile[0]}, {tile[1]}"
    try:
        store.read(tile)
    except StoreError as error:
        fault = str(error).partition(f"{store.path} ")[2].partition(";")[0]  # without the place and the remedy
        return Part("tile", name, Condition.DAMAGED, fault)
    return Part("tile", name, Condition.WHOLE)
