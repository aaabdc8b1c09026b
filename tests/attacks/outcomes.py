"""How an attack can succeed: each of these, raised by a test, is one count in the table of ``make attacks``."""

from collections.abc import Callable
from typing import Any

from gatelab.errors import GatelabError


class SilentlyWrongError(AssertionError):
    """An answer that differs from the truth, or an answer where there is none."""


class RawError(AssertionError):
    """An ordinary mistake ends in a traceback from inside gatelab, torch or Python instead of gatelab's own error."""


class ChangedStateError(AssertionError):
    """The model, its input, a random state or a file is not as it was found."""


def refusal(call: Callable[[], Any]) -> str:
    """Return the message with which gatelab refuses a call; an answer or any other error is a success of the attack."""
    try:
        answer = call()
    except GatelabError as error:
        return str(error)
    except Exception as error:
        raise RawError(f"{type(error).__name__}: {error}") from error
    raise SilentlyWrongError(f"answered {answer!r:.200}")
