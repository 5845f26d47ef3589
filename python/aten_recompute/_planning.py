"""plan_problem."""

import json
from collections.abc import Mapping
from typing import Any

import torch


def plan_problem(problem: Mapping[str, Any], limit_bytes: int) -> dict[str, Any]:
    """What strategy ``budget`` plans for a planning problem, as ``problems(lowered)`` gives them or made by hand.

    Args:
        problem: the format ``aten_recompute.problem/1``.
        limit_bytes: what the peak may be.

    Returns:
        ``peak_bytes``, ``seconds`` of forward and backward, of which ``recompute_seconds`` are spent on computing
        again; ``steps``, each a pair of a node and 0 (in the forward) or 1 + the position of the backward node that it
        serves; ``search_seconds``, which the search took; ``unplanned_peak_bytes``, of keeping all that the backward
        reads; ``smallest_peak_bytes``, below which there is no plan.

    Raises:
        ValueError: no planning problem, or no plan stays under the limit; the message says the smallest peak.
    """
    try:
        return json.loads(torch.ops.aten_recompute.plan_problem(json.dumps(problem), limit_bytes))
    except RuntimeError as error:
        raise ValueError(str(error).splitlines()[0]) from None
