"""The errors that gatelab raises. Each message gives the fact, the place and the remedy."""


class GatelabError(Exception):
    """Base class of all gatelab errors."""


class InputError(GatelabError, ValueError):
    """An argument or the data do not fit the model, or do not fit each other."""


class OutOfRangeError(InputError, IndexError):
    """An index is out of range. Being an IndexError, it ends a Python loop over rows."""


class UnsupportedModelError(GatelabError, TypeError):
    """The model contains an operation for which gatelab has no exact rule."""


class TooManyPathsError(GatelabError, ValueError):
    """The call would enumerate more paths than its limit allows."""


class PathCountOverflowError(GatelabError, OverflowError):
    """A raw path count does not fit in float64."""


class SupportTooLargeError(GatelabError, ValueError):
    """The call would visit more inputs than its limit allows."""


class DataError(GatelabError, OSError):
    """A data file is missing, truncated or corrupt, or cannot be downloaded or written."""


class RunError(GatelabError, RuntimeError):
    """A run directory does not match the request, or cannot be written."""


class StoreError(RunError):
    """A kernel on disk does not match the request, is damaged, or cannot be created."""


class NotConvergedWarning(UserWarning):
    """An iteration stopped before it reached its tolerance; the result holds the residual."""
