"""Types of command-line arguments. For a value that does not fit, argparse prints one line and exits."""

from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence


def choice_list(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Returns the type of arguments such as "a,b": some of `known`, in the order of `known`."""

    def parse(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise ArgumentTypeError(f"{', '.join(unknown) or 'nothing'} is not among {', '.join(known)}")
        return [name for name in known if name in names]

    return parse


def shares(text: str) -> list[float]:
    """The type of arguments such as "0.5,0.25": numbers from 0 to 1."""
    try:
        values = [float(each) for each in text.split(",") if each]
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a list of numbers such as 0.5,0.25") from None
    if not all(0.0 <= value <= 1.0 for value in values):
        raise ArgumentTypeError(f"{text!r}: a share lies between 0 and 1")
    return values


def positive(text: str) -> int:
    """The type of an integer that is at least 1."""
    value = int(text)
    if value < 1:
        raise ArgumentTypeError(f"{value} is less than 1")
    return value
