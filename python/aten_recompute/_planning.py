"""Plans a planning problem without a module."""

import json
from collections.abc import Mapping
from typing import Any, TypedDict

import torch

from ._errors import checked


class ProblemPlan(TypedDict):
    """A plan for a planning problem, as ``plan_problem`` returns it."""

    peak_bytes: int
    seconds: float  # of the forward and the backward, recomputation included
    recompute_seconds: float
    steps: list[
        tuple[int, int]
    ]  # what runs, in order: node and slot; slot 0 is the forward, slot b the b-th backward node
    search_seconds: float  # time that the search took
    unplanned_peak_bytes: int  # the peak if everything that the backward reads is kept
    smallest_peak_bytes: int  # the smallest peak of any plan that was found


def plan_problem(problem: Mapping[str, Any], limit_bytes: int) -> ProblemPlan:
    """Searches for the fastest plan of a planning problem whose peak fits, as the strategy ``budget`` does.

    Args:
        problem: a planning problem in the format ``aten_recompute.problem/1``: one that ``problems`` returned, or one
            that was made by hand.
        limit_bytes: the greatest peak that is allowed, in bytes.

    Returns:
        The plan: its peak in bytes, its times in seconds, and the nodes that run, in order. A step ``(node, slot)``
        runs ``node`` in the forward, if ``slot`` is 0, and otherwise for the backward node at position ``slot - 1``.

    Raises:
        BudgetUnreachableError: no plan stays within the limit; ``smallest_peak_bytes`` is the smallest peak that can be
            reached.
        ValueError: ``problem`` is no planning problem.
    """
    plan: ProblemPlan = json.loads(checked(torch.ops.aten_recompute.plan_problem, json.dumps(problem), limit_bytes))
    plan["steps"] = [(node, slot) for node, slot in plan["steps"]]
    return plan
