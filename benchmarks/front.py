"""Fronts of peak against time, and which of the peers' points ours does not reach."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measure import Result

# By how much the median step of ours may be longer and still count as equal.
NOISE = 0.02


@dataclass
class Comparison:
    """One peer configuration of one model against all of ours.

    `matched_by` is a configuration of ours with no higher peak and no longer step, the fastest of them. Without one,
    the peer's point is still on the joint front if no other peer beats it either (`on_peer_front`). `closest` is the
    configuration of ours that needs the smallest factor in peak or time, whichever is greater; the ratios are its
    peak and time to the peer's.
    """

    model: str
    peer: str
    peak_bytes: float
    step_seconds: float
    matched_by: str | None = None
    on_peer_front: bool = False
    on_joint_front: bool = False
    closest: str | None = None
    closest_peak_ratio: float | None = None
    closest_time_ratio: float | None = None
    disturbed: bool = False


def pareto(results: Sequence[Result]) -> list[Result]:
    """Those that no other beats in both peak and time, from the fastest to the smallest."""
    front: list[Result] = []
    for result in sorted(results, key=lambda each: (each.step_seconds, each.peak_bytes)):
        if not front or result.peak_bytes < front[-1].peak_bytes:
            front.append(result)
    return front


def matches(ours: Result, peer: Result, noise: float = NOISE) -> bool:
    """Whether `ours` has no higher peak than `peer` and no longer step, but for `noise`."""
    return ours.peak_bytes <= peer.peak_bytes and ours.step_seconds <= (1.0 + noise) * peer.step_seconds


def excess(ours: Result, peer: Result) -> float:
    return max(ours.peak_bytes / peer.peak_bytes, ours.step_seconds / peer.step_seconds)


def compare(results: Sequence[Result], noise: float = NOISE) -> list[Comparison]:
    """Each configuration that is not ours, eager and TorchScript included, against ours. Failed ones and those with
    wrong gradients are left out; without any of ours the result is empty."""
    comparisons: list[Comparison] = []
    for model in dict.fromkeys(result.model for result in results):
        usable = [result for result in results if result.model == model and result.comparable]
        ours = [result for result in usable if result.group == "ours"]
        others = [result for result in usable if result.group != "ours"]
        front = pareto(others)
        for peer in others if ours else []:
            matching = [each for each in ours if matches(each, peer, noise)]
            match = min(matching, key=lambda each: each.step_seconds, default=None)
            closest = min(ours, key=lambda each: excess(each, peer))
            shown = match or closest
            comparisons.append(
                Comparison(
                    model,
                    peer.configuration,
                    peer.peak_bytes,
                    peer.step_seconds,
                    matched_by=match.configuration if match else None,
                    on_peer_front=peer in front,
                    on_joint_front=match is None and peer in front,
                    closest=closest.configuration,
                    closest_peak_ratio=closest.peak_bytes / peer.peak_bytes,
                    closest_time_ratio=closest.step_seconds / peer.step_seconds,
                    disturbed=peer.disturbed or shown.disturbed,
                )
            )
    return comparisons


def as_data(comparisons: Sequence[Comparison], noise: float = NOISE) -> dict[str, Any]:
    return {"noise": noise, "comparisons": [asdict(each) for each in comparisons]}


def format_front(comparisons: Sequence[Comparison]) -> str:
    """A table of the peers' points that are still on the joint front; empty where there was nothing to compare."""
    if not comparisons:
        return ""
    left = [each for each in comparisons if each.on_joint_front]
    reached = sum(each.matched_by is not None for each in comparisons)
    lines = [
        f"Ours has no higher peak and no longer step ({NOISE:.0%} for noise) than {reached} of {len(comparisons)} "
        "points of the peers."
    ]
    if left:
        lines += [
            "Still on the joint front:",
            "",
            f"{'model':<12} {'peer':<22} {'peak MiB':>10} {'step ms':>10}  "
            f"{'closest of ours':<20} {'peak':>7} {'time':>7}",
        ]
    for each in left:
        lines.append(
            f"{each.model:<12} {each.peer:<22} {each.peak_bytes / 2**20:>10.1f} {each.step_seconds * 1e3:>10.1f}  "
            f"{each.closest:<20} {each.closest_peak_ratio:>6.3f}x {each.closest_time_ratio:>6.3f}x"
            f"{' *' if each.disturbed else ''}"
        )
    return "\n".join(lines)
