"""Decides whether measured step times are worth comparing."""

import statistics
from collections.abc import Sequence

# Medians of an undisturbed run lie within about a fifth above the fastest step.
LIMIT = 1.5


def disturbed(seconds: Sequence[float]) -> bool:
    """Whether other work on the machine has changed even the median of these step times, which are in seconds.

    A step that lacks a core can take ten times as long, because PyTorch's threads wait for each other at every
    operator. A burst of other work may affect a single configuration only, although configurations take turns. The
    median is not affected as long as fewer than half of the steps are. Beyond that, a ratio of medians means nothing
    and should not be quoted. The result is False for fewer than two steps.
    """
    return len(seconds) > 1 and statistics.median(seconds) > LIMIT * min(seconds)
