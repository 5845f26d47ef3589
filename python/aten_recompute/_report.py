"""What ``report`` returns: a dict that can be printed, drawn and written."""

import json
import os
from collections.abc import Callable
from typing import Any, Literal, cast

import torch

from ._files import write_whole
from ._report_types import MethodReport, ReportDict
from ._timeline import Chart, charts_of

PlotKind = Literal["timeline", "tradeoff", "layers", "addresses"]


class Report(dict[str, list[MethodReport]]):
    """What has been compiled of a lowered module: the dict of docs/report.md, which prints as a text to be read.

    What needs the memory of a step, operator by operator, asks the module for it when it is first needed, and keeps
    it. A copy of a report that was pickled has no module to ask.
    """

    def __init__(self, compiled: ReportDict, timeline: Callable[[bool], str] | None = None) -> None:
        """Makes a report of the JSON of the library.

        Args:
            compiled: the content.
            timeline: returns the timelines as JSON, with the trade-off of peak and time if the argument is true.
        """
        super().__init__(compiled)  # type: ignore[arg-type]
        self._timeline = timeline
        self._described: dict[bool, str] = {}  # what self._timeline returned
        self._charts: dict[bool, list[Chart]] = {}
        self.resident_bytes, self.resident_peak_bytes = _resident_bytes()

    def __reduce__(self) -> tuple[Any, ...]:
        return Report, (dict(self),)

    def __str__(self) -> str:
        from ._report_text import text_of

        return text_of(self)

    def _repr_html_(self) -> str:
        from ._report_text import html_of

        return html_of(self)

    def to_dict(self) -> ReportDict:
        """Returns the content as plain dicts and lists: the JSON of docs/report.md."""
        return cast(ReportDict, json.loads(json.dumps(self)))

    def charts(self, *, tradeoff: bool = False) -> list[Chart]:
        """Returns the memory of the last training step, operator by operator and block by block.

        That is one chart for each method that has run with a profile, or one for each region where these were planned
        one by one. It is empty where there is none.

        Args:
            tradeoff: whether to search for the plans that no other one beats in both peak and time, which takes as
                long as planning did: seconds for a large model.
        """
        if True in self._charts:
            return self._charts[True]
        if tradeoff not in self._charts:
            if self._timeline is None:
                return []
            self._described[tradeoff] = self._timeline(tradeoff)
            self._charts[tradeoff] = charts_of(self._described[tradeoff])
        return self._charts[tradeoff]

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page that shows the step in a browser, without a network.

        It has the memory of a step before and after recomputation, addresses over time, the trade-off of peak and
        time, layers, and a table of all values. The trade-off takes as long as planning did.

        Args:
            path: the path of the file. It is complete or not written at all.

        Raises:
            ValueError: there is nothing to show; the message says what to do first.
            OSError: the file cannot be written.
        """
        from ._report_page import page_of

        write_whole(path, page_of(self._charts_for("to_html", tradeoff=True), self).encode(), "to_html")

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Writes a trace of a step as JSON, which https://ui.perfetto.dev and chrome://tracing open.

        Forward, recomputation and backward are slices by layer and operator, and memory is a counter, for the step as
        planned and for one with nothing recomputed. Without times of operators, each takes a microsecond.

        Args:
            path: the path of the file. It is complete or not written at all.

        Raises:
            ValueError: there is nothing to show; the message says what to do first.
            OSError: the file cannot be written.
        """
        write_whole(path, self._trace("to_perfetto", "perfetto").encode(), "to_perfetto")

    def to_memory_viz(self, path: str | os.PathLike[str]) -> None:
        """Writes the memory of a step in the format of ``torch.cuda.memory._snapshot()``.

        https://pytorch.org/memory_viz and ``python -m torch.cuda._memory_viz`` open it. Each method is a device: 0 for
        the step as planned, 1 with nothing recomputed, and so on. Allocations have layer and source line as frames.

        Args:
            path: the path of the file, a pickle of protocol 4. It is complete or not written at all.

        Raises:
            ValueError: there is nothing to show; the message says what to do first.
            OSError: the file cannot be written.
        """
        import pickle

        snapshot = json.loads(self._trace("to_memory_viz", "memory_viz"))
        write_whole(path, pickle.dumps(snapshot, protocol=4), "to_memory_viz")

    def plot(self, kind: PlotKind = "timeline", *, method: str | None = None, ax: Any = None) -> Any:
        """Draws with matplotlib.

        Args:
            kind: ``"timeline"``, the memory of a step before and after; ``"tradeoff"``, the smallest peak for each
                time and where the plan stands; ``"layers"``, what each layer keeps and recomputes; ``"addresses"``,
                what lies where in memory over time.
            method: the method to draw, if several have run. Of regions that are planned one by one, that with the
                largest peak is drawn.
            ax: the axes to draw into; by default those of a new figure.

        Returns:
            The axes.

        Raises:
            ValueError: ``kind`` or ``method`` is none of those that there are, or there is nothing to draw.
            ImportError: matplotlib is not installed.
        """
        from ._plots import check_kind, plot_chart

        check_kind(kind)
        charts = self._charts_for("plot", tradeoff=kind == "tradeoff")
        names = list(dict.fromkeys(chart.method for chart in charts))
        if method is not None and method not in names:
            raise ValueError(f'plot: no method "{method}" has run with a profile; there are {", ".join(names)}')
        if method is None and len(names) > 1:
            raise ValueError(f'plot: several methods have run ({", ".join(names)}); choose one of them with "method"')
        largest = max(
            (each for each in charts if method in (None, each.method)), key=lambda each: each.planned.peak_bytes
        )
        return plot_chart(largest, kind, ax)

    def _trace(self, function: str, viewer: str) -> str:
        """Returns the steps as JSON for a viewer, which the library makes of the timelines."""
        self._charts_for(function)
        described = self._described.get(True) or self._described[False]
        return str(torch.ops.aten_recompute.trace_of(described, viewer))

    def _charts_for(self, function: str, *, tradeoff: bool = False) -> list[Chart]:
        charts = self.charts(tradeoff=tradeoff)
        if charts:
            return charts
        if self._timeline is None:
            raise ValueError(f"{function}: this is a copy of a report, which has no module: call report(lowered) again")
        if any(each["specialisations"] and _variants(each) for each in self["methods"]):
            raise ValueError(
                f"{function}: the module has no profile: lower with strategy budget, min_cut or segments, or with "
                "profile=True"
            )
        raise ValueError(f"{function}: nothing has been compiled yet: run a training step first, with gradients")


def _variants(method: MethodReport) -> list[Any]:
    return [
        variant
        for specialization in method["specialisations"]
        for region in specialization["regions"]
        for variant in region["variants"]
    ]


def _resident_bytes() -> tuple[int, int]:
    """Returns what the process has resident, and the most that it had; zeros where the system does not say."""
    found = {"VmRSS": 0, "VmHWM": 0}
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                if name in found:
                    found[name] = int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return found["VmRSS"], found["VmHWM"]
