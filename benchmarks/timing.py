"""When a measured step time is worth comparing."""

import statistics
from collections.abc import Sequence

# Medians of an undisturbed run lie within about a fifth above the fastest step.
LIMIT = 1.5


def disturbed(seconds: Sequence[float]) -> bool:
    """Whether other work on the machine has moved even the median of these step times, in seconds.

    A step that is short of a core can take ten times as long, because PyTorch's threads wait for each other at every
    operator; and one slow step can swallow a whole burst of other work, so that taking turns does not share the burst
    out. The median bears that in fewer than half of the steps. Beyond it a ratio of medians says nothing, in either
    direction, and should not be quoted. Never true of fewer than two steps.
    """
    return len(seconds) > 1 and statistics.median(seconds) > LIMIT * min(seconds)
