"""Pareto fronts of peak and time, and the points of the peers that ours does not reach."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measure import Result

# A median step of ours that is longer by at most this share still counts as equal.
NOISE = 0.02


@dataclass
class Comparison:
    """One configuration of a peer on one model, compared with all of ours.

    `matched_by` is the fastest of our configurations with no higher peak and no longer step. If there is none, the
    peer's point remains on the joint front, unless another peer beats it (`on_peer_front`). `closest` is the
    configuration of ours whose peak and time exceed the peer's by the smallest factor, where the greater of the two
    factors counts; `closest_peak_ratio` and `closest_time_ratio` are its peak and time divided by the peer's.
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
    """Returns the results that no other beats in both peak and time, from the fastest to the smallest."""
    front: list[Result] = []
    for result in sorted(results, key=lambda each: (each.step_seconds, each.peak_bytes)):
        if not front or result.peak_bytes < front[-1].peak_bytes:
            front.append(result)
    return front


def matches(ours: Result, peer: Result, noise: float = NOISE) -> bool:
    """Whether `ours` has no higher peak than `peer`, and a step that is longer by at most the share `noise`."""
    return ours.peak_bytes <= peer.peak_bytes and ours.step_seconds <= (1.0 + noise) * peer.step_seconds


def excess(ours: Result, peer: Result) -> float:
    return max(ours.peak_bytes / peer.peak_bytes, ours.step_seconds / peer.step_seconds)


def compare(results: Sequence[Result], noise: float = NOISE) -> list[Comparison]:
    """Compares each configuration that is not ours, eager and TorchScript included, with ours.

    Configurations that failed or have wrong gradients are left out. If there are none of ours, the result is empty.
    """
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
    """Returns a table of the peers' points that remain on the joint front; empty if there was nothing to compare."""
    if not comparisons:
        return ""
    left = [each for each in comparisons if each.on_joint_front]
    reached = sum(each.matched_by is not None for each in comparisons)
    lines = [
        (
            f"Ours has no higher peak and no longer step ({NOISE:.0%} for noise) than {reached} of {len(comparisons)} "
            "points of the peers."
        )
    ]
    if left:
        lines += [
            "Still on the joint front:",
            "",
            (
                f"{'model':<12} {'peer':<22} {'peak MiB':>10} {'step ms':>10}  "
                f"{'closest of ours':<20} {'peak':>7} {'time':>7}"
            ),
        ]
    for each in left:
        lines.append(
            f"{each.model:<12} {each.peer:<22} {each.peak_bytes / 2**20:>10.1f} {each.step_seconds * 1e3:>10.1f}  "
            f"{each.closest:<20} {each.closest_peak_ratio:>6.3f}x {each.closest_time_ratio:>6.3f}x"
            f"{' *' if each.disturbed else ''}"
        )
    return "\n".join(lines)
