"""The errors of the library, and how they become errors of Python.

PyTorch passes on nothing but the message of an error of C++. The library remembers its last errors by their messages,
so that the class and the fields of one can be asked for (``describe_error``, common/typed_errors.h).
"""

import json
from typing import Any, TypedDict

import torch

PREFIX = "aten_recompute: "  # of errors that a user can mend


class PeakOperator(TypedDict):
    """Where the memory of a step is largest: an operator, and what is in memory while it runs."""

    name: str  # "aten::convolution_backward"; "" if it is not known
    layer: str  # path of its module from the root, "layer3.0"; "" if it is not known
    source: str  # source line, "resnet.py:52"; "" if it is not known
    operand_bytes: int  # what it reads, parameters and inputs of the step excepted
    result_bytes: int  # what it returns, unless that lies in the memory of an operand
    workspace_bytes: int  # what it allocates besides while it runs
    other_bytes: int  # everything else that is alive; the sum of all is the peak


class Error(RuntimeError):
    """The base of all errors of this library that a user can mend. The message is one line."""


class BudgetUnreachableError(Error, ValueError):
    """No plan keeps the budget. The call that plans raises it: the first one, or one with larger inputs."""

    smallest_peak_bytes: int = 0  #: the smallest budget that can be kept
    limit_bytes: int = 0  #: the budget
    unplanned_peak_bytes: int = 0  #: the peak without recomputation
    peak_operator: PeakOperator | None = None  #: where the smallest peak is


class PlanMismatchError(Error, ValueError):
    """A plan file was made for another model."""

    region: str = ""  #: fingerprint of the region for which the file has no plan


class NotLoweredError(Error, ValueError):
    """A module is neither lowered nor enabled."""


class NotEnabledError(Error, ValueError):
    """A function, or what ``disable`` was given, is not enabled."""


class NoSuchMethodError(Error, ValueError):
    """A module has no such method."""

    method: str = ""  #: its name


class InvalidOptionError(Error, ValueError):
    """An option is unknown, or has a value that is not accepted."""

    option: str = ""  #: its name; "" if the error is about no single one


class InvalidRuleError(Error, ValueError):
    """A rule, a shape or the flops of an operator cannot be registered."""

    op: str = ""  #: the operator, as it was given; "" if the error is about a function alone


_CLASSES: dict[str, type[Error]] = {
    each.__name__: each
    for each in (
        Error,
        BudgetUnreachableError,
        PlanMismatchError,
        NotLoweredError,
        NotEnabledError,
        NoSuchMethodError,
        InvalidOptionError,
        InvalidRuleError,
    )
}


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message that is not empty."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def typed_error(message: str, shown: str | None = None) -> Error | None:
    """Returns the error of the library that has this message; None if the library has thrown none.

    ``shown`` takes the place of the message.
    """
    described = torch.ops.aten_recompute.describe_error(message)
    if not described:
        return None
    known = json.loads(described)
    error = _CLASSES[known["type"]](message if shown is None else shown)
    error.__dict__.update(known["fields"])
    return error


def error_of_call(message: str) -> Error:
    """Returns what a call of a lowered module raises; register/python_route.cpp asks for it."""
    return typed_error(message) or Error(message)


def checked(operator: Any, *arguments: Any) -> Any:
    """Calls an operator of the library that checks what the user gave.

    Raises:
        ValueError: what the user gave is not accepted; the message, one line, says why. It is an ``Error`` where there
            is a class for what went wrong.
    """
    try:
        return operator(*arguments)
    except (RuntimeError, ValueError) as error:
        message = first_line(error)
        typed = typed_error(message)
        if not isinstance(typed, ValueError):
            # Bindings of PyTorch 2.15 and later raise RuntimeError for every error, so it is asked what it was.
            if not message.startswith(PREFIX) and type(typed) is not Error:
                raise
            typed = None
    raise typed or ValueError(message)  # not inside of "except", so that no other error is shown with it
