"""Draws one picture per model: peak against step time, with the front of the peers and that of ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.front import pareto
from benchmarks.measure import Result

PEERS_COLOR = "tab:blue"
OURS_COLOR = "tab:red"
# Families of configurations: the prefix of their names, the marker, and the name in the legend. The first match counts.
FAMILIES: list[tuple[str, str, str]] = [
    ("eager", "o", "eager"),
    ("torchscript", "s", "TorchScript"),
    ("checkpoint", "^", "torch.utils.checkpoint"),
    ("selective", "v", "selective checkpoint"),
    ("aot_", "D", "AOTAutograd, min-cut"),
    ("compile_", "P", "torch.compile"),
    ("budget_", "o", "ours, by budget"),
    ("", "*", "ours, by strategy"),
]


def family(result: Result) -> tuple[str, str, str]:
    return next(each for each in FAMILIES if result.configuration.startswith(each[0]))


def label(result: Result) -> str:
    """Returns the label of a point: a budget, or the name of a strategy; empty for budgets that equal a peer's peak."""
    name = result.configuration
    for prefix in ("aot_", "compile_", "checkpoint_", "budget_"):
        if name.startswith(prefix):
            rest = name[len(prefix) :]
            return "" if rest.endswith("MiB") else rest
    return name if result.group == "ours" else ""


def place_labels(axes: Any, points: Sequence[tuple[float, float, str, str]]) -> None:
    """Writes each text beside its point, at the place where it overlaps the fewest points and other texts."""
    from matplotlib.transforms import Bbox

    figure = axes.figure
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    taken = []
    for x, y, _, _ in points:
        px, py = axes.transData.transform((x, y))
        taken.append(Bbox.from_extents(px - 6, py - 6, px + 6, py + 6))
    offsets = [(7, 4), (7, -11), (-7, 4), (-7, -11), (0, 9), (0, -16), (16, 12), (16, -20), (-16, 12), (-16, -20)]
    # The texts are placed from top to bottom: of two points on top of each other, the upper one has its text above.
    for x, y, text, color in sorted(points, key=lambda each: -each[1]):
        if not text:
            continue
        best: Any = None
        best_overlap = float("inf")
        for dx, dy in offsets:
            alignment = "left" if dx > 0 else "right" if dx < 0 else "center"
            note = axes.annotate(
                text, (x, y), (dx, dy), textcoords="offset points", fontsize=7, ha=alignment, color=color
            )
            box = note.get_window_extent(renderer)
            overlap = sum(Bbox.intersection(box, other) is not None for other in taken)
            if overlap < best_overlap:
                if best is not None:
                    best.remove()
                best, best_overlap = note, overlap
            else:
                note.remove()
        taken.append(best.get_window_extent(renderer))


def draw_front(axes: Any, results: Sequence[Result], color: str, name: str) -> None:
    """Draws the front as a line of steps, continued upwards at the fastest point and to the right at the smallest."""
    front = pareto(results)
    if not front:
        return
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    seconds = [front[0].step_seconds * 1e3] + [each.step_seconds * 1e3 for each in front] + [right]
    peaks = [top] + [each.peak_bytes / 2**20 for each in front] + [front[-1].peak_bytes / 2**20]
    axes.plot(seconds, peaks, drawstyle="steps-post", color=color, linewidth=1.4, alpha=0.8, label=name)


def plot_model(results: Sequence[Result], path: Path) -> None:
    """Plots peak against step time and writes the picture to `path`.

    Configurations that failed or have wrong gradients are left out. If none are left, nothing is written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [result for result in results if result.comparable]
    if not shown:
        return
    figure, axes = pyplot.subplots(figsize=(11, 6.5), layout="constrained")
    times = [result.step_seconds * 1e3 for result in shown]
    peaks = [result.peak_bytes / 2**20 for result in shown]
    margin = 0.06 * (max(times) - min(times)) or 0.06 * max(times)
    axes.set_xlim(min(times) - margin, max(times) + margin)
    axes.set_ylim(0, 1.08 * max(peaks))
    draw_front(axes, [each for each in shown if each.group != "ours"], PEERS_COLOR, "front of the peers")
    draw_front(axes, [each for each in shown if each.group == "ours"], OURS_COLOR, "front of ours")

    groups: dict[str, list[Result]] = {}
    for result in shown:
        groups.setdefault(family(result)[2], []).append(result)
    for _, marker, name in FAMILIES:
        members = groups.get(name, [])
        if members:
            ours = members[0].group == "ours"
            axes.scatter(
                [each.step_seconds * 1e3 for each in members],
                [each.peak_bytes / 2**20 for each in members],
                s=70 if marker == "*" else 40,
                marker=marker,
                # The markers are open, because points can coincide: those of two equal plans do.
                facecolors="none",
                edgecolors=OURS_COLOR if ours else PEERS_COLOR,
                linewidths=1.3,
                label=name,
                zorder=3,
            )
    axes.set_xlabel("step time, ms")
    axes.set_ylabel("peak above rest, MiB")
    axes.set_title(shown[0].model)
    axes.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside right upper")
    place_labels(
        axes,
        [
            (x, y, label(each), OURS_COLOR if each.group == "ours" else PEERS_COLOR)
            for x, y, each in zip(times, peaks, shown, strict=True)
        ],
    )
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
