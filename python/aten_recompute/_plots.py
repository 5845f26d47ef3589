"""Drawings of a step with matplotlib."""

from typing import Any, get_args

from ._report_text import layers_to_show
from ._texts import byte_text, second_text
from ._timeline import Chart, Walk

_KIND_COLORS = {"forward": "#9ecae1", "recomputed": "#fd8d3c", "backward": "#969696", "loss": "#b58ad6"}
_BLOCK_COLORS = {
    "kept": "#3f83c4",
    "dropped": "#e9c84a",
    "temporary": "#c3dcf2",
    "recomputed": "#fd8d3c",
    "backward": "#969696",
    "given": "#7cb58a",
    "workspace": "#d9dde2",
    "loss": "#b58ad6",
}
_KIND_NAMES = {"recomputed": "computed again"}


def check_kind(kind: str) -> None:
    """Raises ValueError, with one line, for a kind of plot that there is not."""
    from ._report import PlotKind

    known = get_args(PlotKind)
    if kind not in known:
        raise ValueError(f'plot: kind is "{kind}"; accepted are {", ".join(known[:-1])} and {known[-1]}')


def plot_chart(chart: Chart, kind: str, ax: Any) -> Any:
    """Draws a chart into ``ax``, or into the axes of a new figure, and returns the axes."""
    if ax is None:
        try:
            from matplotlib import pyplot
        except ImportError:
            raise ImportError("plot: matplotlib is not installed: pip install aten_recompute[plots]") from None
        _, ax = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    {"timeline": _timeline, "tradeoff": _tradeoff, "layers": _layers, "addresses": _addresses}[kind](chart, ax)
    return ax


def _in_bytes(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    # Steps of powers of two, so that labels are round in MiB.
    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 1.024, 2.048, 4.096, 5.12, 8.192, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: byte_text(value)))


def _edges(walk: Walk, has_times: bool) -> list[float]:
    return walk.times if has_times else [float(i) for i in range(len(walk.moments) + 1)]


def _time_axis(chart: Chart, ax: Any) -> None:
    if chart.has_times:
        ax.xaxis.set_major_formatter(lambda value, _: second_text(value) if value > 0 else "0")
        ax.set_xlabel("time of operators")
    else:
        ax.set_xlabel("operators")


def _timeline(chart: Chart, ax: Any) -> None:
    planned = _edges(chart.planned, chart.has_times)
    for kind, color in _KIND_COLORS.items():
        heights = [moment.bytes if moment.kind == kind else 0 for moment in chart.planned.moments]
        if any(heights):
            ax.stairs(heights, planned, fill=True, color=color, label=_KIND_NAMES.get(kind, kind))
    ax.stairs(
        [moment.bytes for moment in chart.unplanned.moments],
        _edges(chart.unplanned, chart.has_times),
        color="#5d6670",
        linestyle="--",
        label="with nothing recomputed",
    )
    ax.axhline(chart.planned.peak_bytes, color="#252525", linewidth=0.8)
    if 0 < chart.budget_bytes < 1.2 * chart.unplanned.peak_bytes:
        ax.axhline(chart.budget_bytes, color="#cb181d", linewidth=0.8, linestyle="--", label="budget")
    ax.set_title(
        f"{chart.title}: peak {byte_text(chart.planned.peak_bytes)}, "
        f"{byte_text(chart.unplanned.peak_bytes)} with nothing recomputed"
    )
    ax.set_ylabel("memory alive")
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    _time_axis(chart, ax)
    _in_bytes(ax.yaxis)
    ax.legend(fontsize="small")


def _tradeoff(chart: Chart, ax: Any) -> None:
    base = chart.unplanned.seconds or 1.0
    points = sorted(chart.tradeoff, key=lambda point: point.peak_bytes)
    ax.step([p.peak_bytes for p in points], [p.seconds / base for p in points], ".-", where="post", label="plans")
    ax.plot(
        *(chart.planned.peak_bytes, chart.planned.seconds / base, "o"),
        fillstyle="none",
        markersize=12,
        color="#d9662b",
        label="the plan that runs",
    )
    if chart.budget_bytes:
        ax.axvline(chart.budget_bytes, color="#cb181d", linewidth=0.8, linestyle="--", label="budget")
    ax.set_title(f"{chart.title}: peak and time")
    ax.set_xlabel("predicted peak of a step")
    ax.set_ylabel("time, as a multiple of that with nothing recomputed")
    _in_bytes(ax.xaxis)
    ax.legend(fontsize="small")


def _layers(chart: Chart, ax: Any) -> None:
    costs = [
        cost for cost in layers_to_show(chart.planned.by_layer(), most=40) if cost.kept_bytes or cost.recomputed_bytes
    ]
    names = [cost.layer or "(outside of layers)" for cost in costs]
    ax.barh(names, [cost.kept_bytes for cost in costs], color=_BLOCK_COLORS["kept"], label="kept")
    ax.barh(
        names,
        [cost.recomputed_bytes for cost in costs],
        left=[cost.kept_bytes for cost in costs],
        color=_BLOCK_COLORS["recomputed"],
        label="computed again",
    )
    ax.invert_yaxis()
    ax.tick_params(axis="y", labelsize="small" if len(costs) < 25 else "xx-small")
    ax.set_title(f"{chart.title}: what layers keep and compute again")
    _in_bytes(ax.xaxis)
    ax.legend(fontsize="small")


def _addresses(chart: Chart, ax: Any) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Patch, Rectangle

    blocks = chart.planned.blocks
    rectangles = [Rectangle((each.begin, each.offset), each.end - each.begin, each.bytes) for each in blocks]
    colors = [_BLOCK_COLORS[each.kind] for each in blocks]
    ax.add_collection(PatchCollection(rectangles, facecolor=colors, edgecolor="white", linewidth=0.3))
    ax.set_xlim(0, len(chart.planned.moments))
    ax.set_ylim(0, max(chart.planned.arena_bytes, 1))
    kinds = dict.fromkeys(each.kind for each in blocks)
    ax.legend(handles=[Patch(color=_BLOCK_COLORS[kind], label=kind) for kind in kinds], fontsize="small", ncols=2)
    ax.set_title(f"{chart.title}: addresses over time, as predicted")
    ax.set_xlabel("operators")
    ax.set_ylabel("address")
    _in_bytes(ax.yaxis)
