"""The table itself counts what it is shown."""

from tests.attacks.conftest import count, table


def test_counts_by_area_and_outcome():
    rows = count([("files", None), ("files", "SilentlyWrongError"), ("signals", "ValueError")])
    assert rows["files"] == {"tried": 2, "silently wrong": 1, "raw error": 0, "changed state": 0, "other": 0}
    assert rows["signals"]["other"] == 1
    assert list(rows)[-1] == "all"
    assert rows["all"]["tried"] == 3


def test_rows_are_aligned():
    lines = table(count([("files", None)]))
    assert len({line.index("tried") if "tried" in line else line.index("1") for line in lines}) == 1
