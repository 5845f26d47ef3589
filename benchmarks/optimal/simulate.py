"""The memory model of the library's simulator, written a second time: it takes a schedule and returns its peak.

The results of the search and those of the exact model are checked against it.
"""

from collections.abc import Sequence
from typing import Any

Step = tuple[int, int]  # node; 0 in the forward, or 1 + the position of the backward node that it runs for
Interval = tuple[int, int, int]  # value, and the first and last step at which it is in memory


def check_supported(problem: dict[str, Any]) -> None:
    """Raises ValueError for a problem that this simulator and the exact model do not support."""
    nodes, values = problem["nodes"], problem["values"]
    forward = range(problem["num_forward"])
    given = [value for value, producer in enumerate(values["producer"]) if producer < 0]
    held = problem["storages"]["held"]
    for wrong, what in [
        (any(nodes["overwrites"]), "overwritten operands"),
        (any(nodes["is_view"]), "views"),
        (any(nodes["alternatives"]), "alternatives"),
        (any(nodes["optional"]), "optional nodes"),
        (any(nodes.get("replay_bytes", [])), "states of random generators"),
        (values["storages"] != [[index] for index in range(len(held))], "values without a storage of their own"),
        (any(len(nodes["outputs"][node]) != 1 for node in forward), "forward nodes of several outputs or none"),
        ("other_calls" in problem, "several calls before one backward"),
        ("retains_graph" in problem, "several backwards"),
        (any(not held[v] and v not in problem["incoming"] for v in given), "inputs that nobody holds"),
    ]:
        if wrong:
            raise ValueError(f"the exact model does not support {what}")


def simulate(problem: dict[str, Any], steps: Sequence[Step]) -> tuple[int, float]:
    """Returns the peak in bytes and the time of all steps in seconds.

    Each run of a node makes its outputs anew. They are freed after the last read that comes before the next run.

    Raises:
        ValueError: a step reads a value that has not been made, or the forward does not run each of its nodes once.
    """
    nodes = problem["nodes"]
    sizes = storage_sizes(problem)
    first_backward = next((i for i, (_, slot) in enumerate(steps) if slot > 0), len(steps))
    intervals = _lifetimes(problem, steps, first_backward)

    bytes_at = [nodes["workspace_bytes"][node] for node, _ in steps]
    for value, first, last in intervals:
        for i in range(first, last + 1):
            bytes_at[i] += sizes[value]
    # Between forward and backward, memory holds what lives across the border, the incoming gradients, and what the
    # loss needs.
    at_loss = problem["loss_bytes"]
    for value, first, last in intervals:
        if (first < first_backward <= last) or value in problem["incoming"]:
            at_loss += sizes[value]
    if sorted(node for node, slot in steps if slot == 0) != list(range(problem["num_forward"])):
        raise ValueError("the forward does not run each of its nodes once")
    return max(at_loss, *bytes_at), sum(nodes["seconds"][node] for node, _ in steps)


def storage_sizes(problem: dict[str, Any]) -> list[int]:
    """Returns the bytes of each storage that the step itself needs: 0 for those that the caller holds."""
    storages = problem["storages"]
    return [0 if held else size for size, held in zip(storages["bytes"], storages["held"], strict=True)]


def _lifetimes(problem: dict[str, Any], steps: Sequence[Step], first_backward: int) -> list[Interval]:
    """Returns an interval for every run of a node and for every given value: from its making to its last read."""
    nodes = problem["nodes"]
    born: dict[int, int] = {}
    end: dict[int, int] = {}
    intervals: list[Interval] = []

    def close(value: int) -> None:
        if value in born:
            intervals.append((value, born.pop(value), end.pop(value)))

    for value, producer in enumerate(problem["values"]["producer"]):
        if producer < 0:
            born[value] = end[value] = first_backward if value in problem["incoming"] else 0
    for i, (node, slot) in enumerate(steps):
        if (slot == 0) != (i < first_backward):
            raise ValueError(f"step {i} runs in the forward after the backward has begun")
        for value in nodes["inputs"][node]:
            if value not in born:
                raise ValueError(f"step {i} reads value {value}, which has not been made")
            end[value] = i
        for value in nodes["outputs"][node]:
            close(value)
            born[value] = end[value] = i
    for value in problem["results"]:
        end[value] = len(steps) - 1
    for value in list(born):
        close(value)
    return intervals
