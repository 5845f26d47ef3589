"""Turns errors of the library into errors of Python."""

from typing import Any

PREFIX = "aten_recompute: "  # of errors that a user can mend


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message that is not empty."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def checked(operator: Any, *arguments: Any) -> Any:
    """Calls an operator of the library that checks what the user gave.

    Raises:
        ValueError: what the user gave is not accepted; the message, one line, says why.
    """
    try:
        return operator(*arguments)
    except (RuntimeError, ValueError) as error:
        message = first_line(error)
        if not message.startswith(PREFIX) and "has no method" not in message:
            raise
    raise ValueError(message)  # not inside of "except", so that no other error is shown with it
