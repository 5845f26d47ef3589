#!/usr/bin/env python3
"""Draw peak_and_time.svg from the table "GPT and ResNet-50 beside other methods" of docs/benchmarks.md.

    python docs/images/peak_and_time.py

Needs matplotlib. The picture holds no figure of its own: after a new measurement, change the table and run this again.
"""

import re
from pathlib import Path

import matplotlib
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

FOLDER = Path(__file__).resolve().parent
TABLE_MARK = "docs/images/peak_and_time.py reads this table"
OURS = "aten_recompute"

# Beginning of a configuration's name in the table: how it is drawn.
STYLES: dict[str, dict[str, str]] = {
    "`aten_recompute`, budget": {"marker": "o", "color": "#1f5fa8", "label": "aten_recompute, memory budget"},
    "`torch.utils.checkpoint`": {"marker": "s", "color": "#b5482f", "label": "torch.utils.checkpoint, per block"},
    "selective checkpointing": {"marker": "D", "color": "#b5482f", "label": "selective checkpointing"},
    "AOTAutograd min-cut": {"marker": "^", "color": "#6a6a6a", "label": "AOTAutograd, min-cut"},
    "`torch.compile`": {"marker": "v", "color": "#3f8f4f", "label": "torch.compile"},
}

Point = tuple[str, float, float]  # label of the budget, time, peak


def read_table() -> dict[str, dict[str, list[Point]]]:
    """Return, per model and beginning of the configuration's name, the points of the table."""
    lines = (FOLDER.parent / "benchmarks.md").read_text(encoding="utf-8").split(TABLE_MARK, 1)[1].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    header = [cell.strip() for cell in lines[first].strip("|").split("|")]
    models: dict[str, dict[str, list[Point]]] = {name: {} for name in header[1:]}
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        style = next((each for each in STYLES if cells[0].startswith(each)), None)
        if style is None:
            continue
        budget = re.search(r"budget ([0-9.]+)", cells[0])
        for model, cell in zip(models, cells[1:], strict=True):
            found = re.fullmatch(r"([0-9.]+) / ([0-9.]+)", cell)
            if found:
                peak, time = float(found[1]), float(found[2])
                models[model].setdefault(style, []).append((budget[1] if budget else "", time, peak))
    return models


def draw(axes: Axes, model: str, points: dict[str, list[Point]]) -> None:
    axes.axhline(1.0, color="#cccccc", linewidth=0.8, zorder=0)
    axes.axvline(1.0, color="#cccccc", linewidth=0.8, zorder=0)
    axes.plot(1.0, 1.0, marker="*", color="black", markersize=12, linestyle="none")
    for name, style in STYLES.items():
        found = points.get(name, [])
        times = [time for _, time, _ in found]
        peaks = [peak for _, _, peak in found]
        is_ours = OURS in name
        axes.plot(
            times,
            peaks,
            marker=style["marker"],
            color=style["color"],
            linestyle="-" if is_ours else "none",
            linewidth=1.6,
            markersize=7 if is_ours else 6,
            zorder=3 if is_ours else 2,
        )
        for label, time, peak in found:
            crowded = any(0 < other - time < 0.1 and abs(height - peak) < 0.05 for _, other, height in found)
            axes.annotate(
                label,
                (time, peak),
                xytext=(-7, -10) if is_ours else (0, 5 if style["marker"] == "^" else -13),
                textcoords="offset points",
                ha="right" if is_ours or crowded else "center",
                fontsize=8,
                color=style["color"],
            )
    axes.set_title(model, fontsize=11)
    axes.set_xlabel("time of one step, relative to eager PyTorch")
    axes.set_ylim(0, 1.35)
    axes.set_xlim(0.8, 2.05)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    matplotlib.rcParams["svg.hashsalt"] = "aten_recompute"  # the same file at each run
    models = read_table()
    figure, all_axes = pyplot.subplots(1, len(models), figsize=(10, 4.6), sharey=True)
    for axes, (model, points) in zip(all_axes, models.items(), strict=True):
        draw(axes, model, points)
    all_axes[0].set_ylabel("peak memory, relative to eager PyTorch")
    handles = [
        Line2D(
            [],
            [],
            marker=style["marker"],
            color=style["color"],
            linestyle="-" if OURS in name else "none",
            label=style["label"],
        )
        for name, style in STYLES.items()
    ]
    handles.append(Line2D([], [], marker="*", color="black", markersize=11, linestyle="none", label="eager PyTorch"))
    figure.legend(handles=handles, loc="lower center", ncol=3, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0.14, 1, 1))
    figure.savefig(FOLDER / "peak_and_time.svg", metadata={"Date": None}, facecolor="white")


if __name__ == "__main__":
    main()
