"""The memory model of passes/plan/decisions.cpp, written a second time and without decisions: steps in, peak out.

What the exact model says of its solutions, and what the search says of its own, is checked against this.
"""

from collections.abc import Sequence
from typing import Any

Step = tuple[int, int]  # node; 0 in the forward, 1 + position of the backward node that it serves


def check_supported(problem: dict[str, Any]) -> None:
    """Raises ValueError for what neither this nor the exact model knows."""
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
        (any(not held[v] and v not in problem["incoming"] for v in given), "inputs that nobody holds"),
    ]:
        if wrong:
            raise ValueError(f"the exact model does not know {what}")


def simulate(problem: dict[str, Any], steps: Sequence[Step]) -> tuple[int, float]:
    """Peak in bytes, and seconds of all steps. Each run of a node makes its outputs anew; they go after the last read
    that comes before the next run. Raises ValueError where a step reads what has not been made."""
    nodes = problem["nodes"]
    sizes = [0 if held else size for size, held in zip(problem["storages"]["bytes"], problem["storages"]["held"])]
    num_forward = problem["num_forward"]
    first_backward = next((i for i, (node, slot) in enumerate(steps) if slot > 0), len(steps))

    # Every run of a node, and every given value, is one interval from the step that made it to its last read.
    born: dict[int, int] = {}
    end: dict[int, int] = {}
    intervals: list[tuple[int, int, int]] = []  # value, first and last step

    def close(value: int) -> None:
        if value in born:
            intervals.append((value, born.pop(value), end.pop(value)))

    incoming = set(problem["incoming"])
    for value, producer in enumerate(problem["values"]["producer"]):
        if producer < 0:
            born[value] = end[value] = first_backward if value in incoming else 0
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

    bytes_at = [nodes["workspace_bytes"][node] for node, _ in steps]
    for value, first, last in intervals:
        for i in range(first, last + 1):
            bytes_at[i] += sizes[value]
    # Between forward and backward: what lives over the border, the gradients that come in, and what the loss needs.
    at_loss = problem["loss_bytes"]
    for value, first, last in intervals:
        if (first < first_backward <= last) or value in incoming:
            at_loss += sizes[value]
    seconds = sum(nodes["seconds"][node] for node, _ in steps)
    if sorted(node for node, slot in steps if slot == 0) != list(range(num_forward)):
        raise ValueError("the forward does not run each of its nodes once")
    return max(at_loss, *bytes_at), seconds
