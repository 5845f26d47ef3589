"""The page that ``Report.to_html`` writes: one file with the data, a style, a script and uPlot."""

import html
import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._report_text import described_peak, figures_of_chart, layers_to_show, parts_of
from ._timeline import ArenaBlock, Block, Chart, Walk

if TYPE_CHECKING:
    from ._report import Report

_FOLDER = Path(__file__).resolve().parent / "page"


@cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


class _Texts:
    """Texts that many rows share, each written once."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        if text not in self._index:
            self._index[text] = len(self.all)
            self.all.append(text)
        return self._index[text]


def _blocks(blocks: list[Block] | list[ArenaBlock], texts: _Texts) -> list[list[int]]:
    return [
        [
            *(texts(block.name), texts(block.kind), block.bytes, block.begin, block.end, block.offset),
            *(texts(block.layer), texts(block.source)),
        ]
        for block in blocks
    ]


def _walk(walk: Walk, texts: _Texts) -> dict[str, Any]:
    return {
        "peak": walk.peak_bytes,
        "saved": walk.saved_bytes,
        "seconds": walk.seconds,
        "times": walk.times,
        "size": walk.arena_bytes,
        "moments": [
            [texts(each.name), texts(each.kind), each.bytes, texts(each.layer), texts(each.source)]
            for each in walk.moments
        ],
        "blocks": _blocks(walk.blocks, texts),
    }


def _chart(chart: Chart, report: "Report") -> dict[str, Any]:
    texts = _Texts()
    method = next(each for each in report["methods"] if each["method"] == chart.method)
    figures = figures_of_chart(method, chart) or {}
    last = max((block.end for block in chart.arena), default=0)
    data = {
        "title": chart.title,
        "budget": chart.budget_bytes,
        "hasTimes": chart.has_times,
        "measuredPeak": figures.get("measured_peak_bytes"),
        "predictedPeak": chart.planned.peak_bytes,
        "peakText": described_peak(figures["peak_operator"]) if figures else "",
        "planned": _walk(chart.planned, texts),
        "unplanned": _walk(chart.unplanned, texts),
        "tradeoff": [[each.peak_bytes, each.seconds, each.saved_bytes] for each in chart.tradeoff],
        "layers": [
            [
                *(cost.layer or "(outside of layers)", cost.kept_bytes, cost.recomputed_bytes),
                *(cost.forward_seconds, cost.backward_seconds, cost.recompute_seconds),
            ]
            for cost in layers_to_show(chart.planned.by_layer(), most=60)
        ],
        "arena": {
            "blocks": _blocks([block for block in chart.arena if block.offset >= 0], texts),
            "size": chart.arena_bytes,
            "events": last,
        },
    }
    data["texts"] = texts.all
    return data


def page_of(charts: list[Chart], report: "Report") -> str:
    """Returns the page as HTML."""
    data = {
        "charts": [_chart(chart, report) for chart in charts],
        "parts": [[part.title, part.lines] for part in parts_of(report)],
        "resident": [report.resident_bytes, report.resident_peak_bytes],
    }
    # "<" would end the element, or begin a comment in it, where a text contains a tag.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    parts = {
        "TITLE": html.escape(charts[0].title),
        "UPLOT_CSS": _file("uPlot.min.css"),
        "CSS": _file("page.css"),
        "LICENSE": _file("uPlot.LICENSE.txt"),
        "UPLOT_JS": _file("uPlot.iife.min.js"),
        "DATA": text,
        "JS": _file("page.js"),
    }
    # In one go, so that nothing in the data is taken for a place to fill in.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _file("page.html"))
