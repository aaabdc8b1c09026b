"""The errors gatelab raises. Each message gives the fact, the place and the remedy."""


class GatelabError(Exception):
    """Anything gatelab refuses to do."""


class InputError(GatelabError, ValueError):
    """The data, or an argument, do not fit the model or one another."""


class OutOfRangeError(InputError, IndexError):
    """An index names nothing; Python ends a loop over rows by it."""


class UnsupportedModelError(GatelabError, TypeError):
    """The model holds something for which no exact rule is known."""


class TooManyPathsError(GatelabError, ValueError):
    """Paths would have to be enumerated, and there are too many of them."""


class PathCountOverflowError(GatelabError, OverflowError):
    """A raw path count does not fit float64."""


class SupportTooLargeError(GatelabError, ValueError):
    """Every input would have to be visited, and there are too many of them."""


class DataError(GatelabError, OSError):
    """A data file is missing, truncated or corrupt, or could not be fetched or written."""


class RunError(GatelabError, RuntimeError):
    """A run's directory does not fit what is asked of it, or cannot be written."""


class StoreError(RunError):
    """A kernel on disk does not fit what is asked of it, is damaged, or cannot be made."""


class NotConvergedWarning(UserWarning):
    """An iteration stopped before it reached its tolerance; the result says how far it came."""
