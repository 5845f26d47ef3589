"""A report as a text, and as HTML for notebooks."""

import html
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ._errors import PeakOperator
from ._texts import byte_text, second_text, table_text
from ._timeline import Block, Chart, LayerCost

if TYPE_CHECKING:
    from ._report import Report
    from ._report_types import MethodReport

LARGEST = 10
_LAYER_HEADER = ["layer", "kept", "recomputed", "time", "of it again"]
_VALUE_HEADER = ["value", "state", "layer", "source", "bytes"]


@dataclass
class Part:
    """What a text says of a method, or of one region of it where these are planned one by one."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    layers: list[list[str]] = field(default_factory=list)
    values: list[list[str]] = field(default_factory=list)
    chart: Chart | None = None


def short_source(source: str) -> str:
    """Returns a source line with the last two names of its path: "networks/gpt.py:33"."""
    return "/".join(source.split("/")[-2:])


def described_peak(peak: PeakOperator) -> str:
    """Returns where a peak is, in words; "" if it is not known."""
    if not peak["name"]:
        return ""
    text = peak["name"]
    if peak["layer"]:
        text += f" of {peak['layer']}"
    if peak["source"]:
        text += f" ({short_source(peak['source'])})"
    parts = [("operands", "operand_bytes"), ("results", "result_bytes"), ("workspace", "workspace_bytes")]
    sizes = [f"{name} {byte_text(peak[key])}" for name, key in parts]  # type: ignore[literal-required]
    return f"{text}: {', '.join(sizes)}, other values {byte_text(peak['other_bytes'])}"


def figures_of(method: "MethodReport") -> list[dict[str, Any]]:
    """Returns the figures of all plans of a method, or of its regions where these are planned one by one."""
    found: list[Any] = []
    for specialization in method["specialisations"]:
        variants = [variant for region in specialization["regions"] for variant in region["variants"]]
        found += specialization["plans"] or variants
    return found


def figures_of_chart(method: "MethodReport", chart: Chart) -> dict[str, Any] | None:
    """Returns the figures of the plan that a chart shows: the newest with its peak."""
    all_figures = figures_of(method)
    same = [each for each in all_figures if each["predicted_peak_bytes"] == chart.planned.peak_bytes]
    found = same or all_figures
    return found[-1] if found else None


def _peak_lines(figures: dict[str, Any], budget_bytes: int) -> Iterable[tuple[str, str]]:
    if not figures["unplanned_peak_bytes"]:
        yield "peak of a step", "not known: lower with profile=True, or with a strategy that makes a profile"
        return
    text = f"predicted {byte_text(figures['predicted_peak_bytes'])}"
    if "measured_peak_bytes" in figures:
        text += f", measured {byte_text(figures['measured_peak_bytes'])}"
    text += f"; {byte_text(figures['unplanned_peak_bytes'])} with nothing recomputed"
    if budget_bytes:
        text += f"; budget {byte_text(budget_bytes)}"
    yield "peak of a step", text
    yield "at the peak", described_peak(figures["peak_operator"])
    kept = byte_text(figures["predicted_saved_bytes"]) + " between forward and backward"
    if figures["outside_bytes"]:
        kept += f", {byte_text(figures['outside_bytes'])} of it by operators outside of regions"
    if figures["other_calls"]:
        kept += f"; other calls before the same backward keep {figures['other_calls']:g} times as much"
    yield "kept", kept
    seconds, unplanned = figures["predicted_seconds"], figures["unplanned_seconds"]
    if unplanned:
        yield (
            "time of a step",
            f"predicted {second_text(seconds)}, {seconds / unplanned:.3f} of that with nothing recomputed",
        )


def _arena_line(method: "MethodReport") -> Iterable[tuple[str, str]]:
    arenas = [
        variant["arena"]
        for specialization in method["specialisations"]
        for region in specialization["regions"]
        for variant in region["variants"]
    ]
    largest = max(arenas, key=lambda arena: arena["bytes"], default=None)
    if largest is not None and largest["bytes"]:
        alive = byte_text(largest["alive_bytes"])
        text = f"{byte_text(largest['bytes'])} resident for {largest['blocks']} blocks, {alive} of it in use at once"
        yield "arena", text


def _compiling_lines(method: "MethodReport", waits: bool) -> Iterable[tuple[str, str]]:
    specializations = method["specialisations"]
    for calls in method["unplanned_calls"]:
        yield "unplanned calls", f"{calls['calls']}: {calls['reason']}"
    if "leaner_budget_bytes" in method:
        yield "out of memory", f"plans are made under {byte_text(method['leaner_budget_bytes'])} since"
    if waits:
        return
    regions = sum(len(each["regions"]) for each in specializations)
    variants = sum(len(region["variants"]) for each in specializations for region in each["regions"])
    text = f"{regions} in {len(specializations)} specialization{'s' if len(specializations) > 1 else ''}"
    yield "regions", f"{text}, compiled {variants} time{'s' if variants != 1 else ''}"
    for number, specialization in enumerate(specializations):
        for each in specialization["breaks"]:
            place = f" at {short_source(each['location'])}" if each["location"] else ""
            which = f" (specialization {number})" if len(specializations) > 1 else ""
            yield "break", f"{each['node']}{place}: {each['reason']}{which}"
    figures = figures_of(method)
    profile, search = (sum(each[key] for each in figures) for key in ("profile_seconds", "plan_seconds"))
    if profile or search:
        yield "compiling took", f"{second_text(profile)} for the profile, {second_text(search)} for the search"


def _layer_rows(costs: list[LayerCost], has_times: bool) -> list[list[str]]:
    return [
        [
            cost.layer or "(outside of layers)",
            byte_text(cost.kept_bytes),
            byte_text(cost.recomputed_bytes),
            second_text(cost.seconds) if has_times else "",
            second_text(cost.recompute_seconds) if has_times and cost.recompute_seconds else "",
        ]
        for cost in costs
        if cost.kept_bytes or cost.recomputed_bytes or cost.seconds
    ]


def layers_to_show(costs: list[LayerCost], most: int = 24) -> list[LayerCost]:
    """Returns the costs by layer, put together by the first names of the paths until there are few."""
    for depth in range(max((cost.layer.count(".") for cost in costs), default=0) + 1, 0, -1):
        merged: dict[str, LayerCost] = {}
        for cost in costs:
            name = ".".join(cost.layer.split(".")[:depth])
            into = merged.setdefault(name, LayerCost(name))
            into.kept_bytes += cost.kept_bytes
            into.recomputed_bytes += cost.recomputed_bytes
            into.forward_seconds += cost.forward_seconds
            into.backward_seconds += cost.backward_seconds
            into.recompute_seconds += cost.recompute_seconds
        if len(merged) <= most:
            break
    return list(merged.values()) if costs else []


def _value_row(block: Block) -> list[str]:
    return [block.name, block.kind, block.layer, short_source(block.source), byte_text(block.bytes)]


def largest_values(blocks: list[Block]) -> str:
    """Returns a table of values, for texts and errors."""
    return table_text(_VALUE_HEADER, [_value_row(block) for block in blocks], left=4)


def _state(method: "MethodReport") -> str:
    if any(region["variants"] for specialization in method["specialisations"] for region in specialization["regions"]):
        return ""
    return "nothing has been compiled yet: run a training step first, with gradients"


def parts_of(report: "Report") -> list[Part]:
    """Returns what there is to say of each method."""
    charts = report.charts()
    parts = []
    for method in report["methods"]:
        options = dict(method["options"])
        strategy = options.pop("strategy", "none")
        shown = ", ".join(f"{name}={value!r}" for name, value in options.items() if not isinstance(value, dict))
        title = f"{method['method']}: {strategy}" + (f" ({shown})" if shown else "")
        of_method = [chart for chart in charts if chart.method == method["method"]]
        part = Part(title)
        parts.append(part)
        if waits := _state(method):
            part.lines.append(("state", waits))
        elif not of_method:
            part.lines += _peak_lines(figures_of(method)[-1], 0)
        for chart in of_method:
            if chart.region:
                part = Part(f"{method['method']}, {chart.region}")
                parts.append(part)
            part.chart = chart
            figures = figures_of_chart(method, chart)
            if figures is not None:
                part.lines += _peak_lines(figures, chart.budget_bytes)
            part.layers = _layer_rows(layers_to_show(chart.planned.by_layer()), chart.has_times)
            part.values = [_value_row(block) for block in chart.planned.largest(LARGEST)]
        first = next(each for each in parts if each.title == title)
        first.lines += [*_arena_line(method), *_compiling_lines(method, bool(waits))]
    return parts


def _process_line(report: "Report") -> str:
    if not report.resident_peak_bytes:
        return ""
    now, most = byte_text(report.resident_bytes), byte_text(report.resident_peak_bytes)
    return f"process: {now} resident, at most {most} so far"


def text_of(report: "Report") -> str:
    """Returns the report as a text to be read."""
    sections = []
    for part in parts_of(report):
        lines = [part.title]
        width = max((len(name) for name, _ in part.lines), default=0)
        lines += [f"  {name.ljust(width)}  {text}" for name, text in part.lines if text]
        for header, rows, left in ((_LAYER_HEADER, part.layers, 1), (_VALUE_HEADER, part.values, 4)):
            if rows:
                table = table_text(header, rows, left)
                lines += ["", *(f"  {line}" for line in table.splitlines())]
        sections.append("\n".join(lines))
    if line := _process_line(report):
        sections.append(line)
    return "\n\n".join(sections)


def _html_table(header: list[str], rows: list[list[str]], left: int, caption: str) -> str:
    def cells(row: list[str], tag: str) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if i < left else "right"}">{html.escape(cell)}</{tag}>'
            for i, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows)
    return f"<table><caption>{caption}</caption><tr>{cells(header, 'th')}</tr>{body}</table>"


def _outline(chart: Chart, width: int = 640, height: int = 120) -> str:
    """Returns the memory of a step, and that with nothing recomputed, as a small picture."""
    most = max(chart.planned.peak_bytes, chart.unplanned.peak_bytes, 1)
    paths = []
    for walk, style in ((chart.unplanned, "fill:#9994;stroke:none"), (chart.planned, "fill:#4a90d9aa;stroke:none")):
        times = walk.times if walk.times[-1] > 0 else [float(i) for i in range(len(walk.moments) + 1)]
        end = max(times[-1], 1e-12)
        points = ["M0 " + str(height)]
        for moment, left, right in zip(walk.moments, times, times[1:], strict=False):
            y = height * (1 - moment.bytes / most)
            points.append(f"L{width * left / end:.1f} {y:.1f} L{width * right / end:.1f} {y:.1f}")
        paths.append(f'<path d="{" ".join(points)} L{width} {height} Z" style="{style}"/>')
    title = (
        f"Memory of a step: at most {byte_text(chart.planned.peak_bytes)}, "
        f"{byte_text(chart.unplanned.peak_bytes)} with nothing recomputed (gray)"
    )
    return (
        f'<svg role="img" viewBox="0 0 {width} {height}" style="max-width:{width}px;width:100%">'
        f"<title>{title}</title>{''.join(paths)}</svg><div>{title}</div>"
    )


def html_of(report: "Report") -> str:
    """Returns the report as HTML for a notebook, without scripts."""
    sections = []
    for part in parts_of(report):
        section = f"<h4>{html.escape(part.title)}</h4>"
        if part.chart is not None:
            section += _outline(part.chart)
        rows = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(text)}</td></tr>'
            for name, text in part.lines
            if text
        )
        section += f"<table>{rows}</table>"
        if part.layers:
            section += _html_table(_LAYER_HEADER, part.layers, 1, "What layers keep and recompute")
        if part.values:
            section += _html_table(_VALUE_HEADER, part.values, 4, "The largest values")
        sections.append(section)
    if line := _process_line(report):
        sections.append(f"<div>{line}</div>")
    return f'<div class="aten-recompute-report">{"".join(sections)}</div>'
