"""Tables: CSV and Parquet files, and data frames. They need pandas, the extra ``tables``."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gatelab.errors import DataError, InputError

ENDINGS = (".csv", ".tsv", ".parquet", ".pq")


def is_frame(given: Any) -> bool:
    """Whether this is a DataFrame, without importing pandas."""
    return type(given).__name__ == "DataFrame" and hasattr(given, "columns")


def read_frame(path: Path) -> Any:
    """Read a table as a DataFrame.

    Raises:
        InputError: pandas is not installed.
        DataError: the file cannot be read as a table.
    """
    pandas = import_pandas(f"{path} is a table")
    try:
        if path.suffix in (".parquet", ".pq"):
            return pandas.read_parquet(path)
        return pandas.read_csv(path, sep="\t" if path.suffix == ".tsv" else ",")
    except Exception as error:  # pandas and pyarrow raise errors of many kinds
        raise DataError(f"{path} cannot be read as a table: {type(error).__name__}: {error}") from error


def import_pandas(why: str) -> Any:
    """Return the module pandas, or raise an InputError that says how to install it."""
    try:
        import pandas  # noqa: PLC0415  an optional extra
    except ImportError as error:
        raise InputError(f"{why}, which needs pandas: pip install 'gatelab[tables]'") from error
    return pandas


def split_frame(frame: Any, label: str | None, name: str, *, labelled: bool = True) -> tuple[Tensor, np.ndarray]:
    """Split a frame into the label column and the numbers in the other columns.

    Raises:
        InputError: there is no such column, or another column holds something other than numbers.
    """
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        raise InputError(f"{name}: several columns have the same name; there are {_listed(columns)}")
    if labelled and label is None:
        raise InputError(
            f"{name}: name the column with the labels, with --label or label=; the columns are {_listed(columns)}"
        )
    if labelled and label not in columns:
        raise InputError(f"{name}: there is no column '{label}'; the columns are {_listed(columns)}")
    features = frame.drop(columns=[label]) if labelled else frame
    texts = [str(column) for column in features.columns if features[column].dtype.kind not in "biuf"]
    if texts:
        raise InputError(
            f"{name}: {_listed(texts)} do not hold numbers; drop such columns, or encode them, for example with "
            "pandas.get_dummies"
        )
    if not len(features.columns):
        raise InputError(f"{name}: there is no column besides the label; add columns with the examples")
    x = torch.from_numpy(features.to_numpy(dtype=np.float64, copy=True, na_value=np.nan)).to(torch.get_default_dtype())
    return x, np.asarray(frame[label].to_numpy()) if labelled else np.zeros(len(frame))


def _listed(columns: list[Any]) -> str:
    shown = ", ".join(map(str, columns[:12]))
    return f"{shown}, … ({len(columns)} in all)" if len(columns) > 12 else shown
