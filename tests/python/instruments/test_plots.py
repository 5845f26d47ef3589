"""Drawings of a step with matplotlib."""

from collections.abc import Iterator
from typing import Any

import matplotlib
import pytest
from matplotlib import pyplot

import aten_recompute
from instruments.test_report import trained_workload

KINDS = ("timeline", "tradeoff", "layers", "addresses")


@pytest.fixture(scope="module")
def report() -> Any:
    return aten_recompute.report(trained_workload())


@pytest.fixture(autouse=True)
def without_a_window() -> Iterator[None]:
    before = matplotlib.get_backend()
    matplotlib.use("Agg")
    yield
    pyplot.close("all")
    matplotlib.use(before)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_returns_axes_that_can_be_drawn(report: Any, kind: Any) -> None:
    axes = report.plot(kind)
    assert isinstance(axes, matplotlib.axes.Axes)
    assert "GPT.forward" in axes.get_title()
    axes.figure.canvas.draw()


def test_axes_that_are_given_are_drawn_into(report: Any) -> None:
    _, (first, second) = pyplot.subplots(1, 2)
    assert report.plot("timeline", ax=first) is first
    assert report.plot("layers", ax=second) is second
    assert len(pyplot.get_fignums()) == 1


def test_the_timeline_is_as_high_as_the_peaks(report: Any) -> None:
    (chart,) = report.charts()
    axes = report.plot("timeline")
    heights = [stairs.get_data().values.max() for stairs in axes.patches]
    assert max(heights[:-1]) == chart.planned.peak_bytes
    assert heights[-1] == chart.unplanned.peak_bytes


def test_the_trade_off_marks_the_plan_that_runs(report: Any) -> None:
    (chart,) = report.charts(tradeoff=True)
    curve, mark = report.plot("tradeoff").lines[:2]
    assert list(curve.get_xdata()) == sorted(point.peak_bytes for point in chart.tradeoff)
    assert list(mark.get_xdata()) == [chart.planned.peak_bytes]


def test_layers_are_as_long_as_what_they_keep_and_compute_again(report: Any) -> None:
    (chart,) = report.charts()
    bars = [bar.get_width() for bar in report.plot("layers").patches]
    costs = chart.planned.by_layer()
    assert sum(bars) == sum(cost.kept_bytes + cost.recomputed_bytes for cost in costs)


def test_addresses_have_a_rectangle_for_each_block(report: Any) -> None:
    (chart,) = report.charts()
    axes = report.plot("addresses")
    (rectangles,) = axes.collections
    assert len(rectangles.get_paths()) == len(chart.planned.blocks)
    assert axes.get_ylim()[1] == chart.planned.arena_bytes


def test_an_unknown_kind_is_one_line(report: Any) -> None:
    message = r'^plot: kind is "time"; accepted are timeline, tradeoff, layers and addresses$'
    with pytest.raises(ValueError, match=message):
        report.plot("time")
