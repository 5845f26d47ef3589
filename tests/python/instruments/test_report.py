"""A report is a dict, prints as a text to be read, and shows the memory of a step."""

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute._texts import byte_text, second_text
from benchmarks.models import make
from support.helpers import lowered_copy
from support.nets import Net
from support.several_regions import Printing


def trained_workload(name: str = "gpt", steps: int = 1, **options: Any) -> Any:
    workload = make(name, size="small")
    defaults = {"memory_budget": 0.7, "unreachable": "leanest", "cost_model": "flops", "accumulate": True}
    lowered = aten_recompute.lower(torch.jit.script(workload.module), "budget", **{**defaults, **options})
    for _ in range(steps):
        workload.step(lowered)
    return lowered


def trained_net(strategy: Any = "none", **options: Any) -> Any:
    lowered = lowered_copy(Net(), strategy, **options)
    lowered(torch.randn(64, 16)).backward()
    return lowered


def test_a_report_is_a_dict_that_json_and_pickle_accept() -> None:
    report = aten_recompute.report(trained_workload())
    assert isinstance(report, dict)
    assert list(report) == ["methods"]
    plain = report.to_dict()
    assert type(plain) is dict
    assert plain == report == json.loads(json.dumps(report))
    plain["methods"].clear()
    assert report["methods"]
    for other in (copy.copy(report), copy.deepcopy(report), pickle.loads(pickle.dumps(report))):
        assert isinstance(other, aten_recompute.Report)
        assert other == report


def test_a_copy_of_a_report_says_that_it_has_no_module(tmp_path: Path) -> None:
    report = pickle.loads(pickle.dumps(aten_recompute.report(trained_workload())))
    assert "peak of a step  predicted" in str(report)
    with pytest.raises(ValueError, match=r"^to_html: this is a copy of a report, which has no module"):
        report.to_html(tmp_path / "page.html")


def test_the_text_has_the_figures_of_the_report() -> None:
    # Gradients are new memory in each step, as a measured peak assumes that.
    report = aten_recompute.report(trained_workload(steps=2, accumulate=False))
    (variant,) = report["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    text = str(report)
    assert text.startswith("forward: budget (")
    assert f"predicted {byte_text(variant['predicted_peak_bytes'])}" in text
    assert f"measured {byte_text(variant['measured_peak_bytes'])}" in text
    assert f"{byte_text(variant['unplanned_peak_bytes'])} with nothing recomputed" in text
    assert f"{byte_text(variant['predicted_saved_bytes'])} between forward and backward" in text
    assert f"predicted {second_text(variant['predicted_seconds'])}" in text
    assert f"{second_text(variant['plan_seconds'])} for the search" in text
    peak = variant["peak_operator"]
    assert f"at the peak     {peak['name']}" in text
    assert peak["layer"] in text
    assert f"process: {byte_text(report.resident_bytes)} resident" in text


def test_the_text_lists_ten_values_the_largest_first() -> None:
    report = aten_recompute.report(trained_workload())
    (chart,) = report.charts()
    lines = str(report).splitlines()
    begin = next(i for i, line in enumerate(lines) if re.match(r"  value +state", line))
    rows = lines[begin + 1 : lines.index("", begin)]
    assert len(rows) == 10
    largest = max(block.bytes for block in chart.planned.blocks if block.kind not in ("workspace", "loss"))
    assert rows[0].endswith(byte_text(largest))
    assert all(re.search(r"\.py:\d+ ", row) for row in rows)


@pytest.mark.parametrize("name", ["gpt", "resnet50", "transformer", "unet", "mlp_loss"])
def test_the_blocks_of_a_step_add_up_to_its_peak(name: str) -> None:
    report = aten_recompute.report(trained_workload(name))
    (chart,) = report.charts()
    (variant,) = report["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    assert chart.planned.peak_bytes == variant["predicted_peak_bytes"]
    assert chart.unplanned.peak_bytes == variant["unplanned_peak_bytes"]
    assert chart.planned.saved_bytes == variant["predicted_saved_bytes"]
    assert chart.planned.seconds == pytest.approx(variant["predicted_seconds"])
    for walk in (chart.planned, chart.unplanned):
        for i, moment in enumerate(walk.moments):
            assert moment.bytes == sum(block.bytes for block in walk.alive_at(i))
        assert max(moment.bytes for moment in walk.moments) == walk.peak_bytes
        assert walk.moments[walk.peak_moment].bytes == walk.peak_bytes


def test_what_is_kept_and_computed_again_is_what_the_report_names() -> None:
    report = aten_recompute.report(trained_workload())
    (chart,) = report.charts()
    (variant,) = report["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    again = {block.name for block in chart.planned.blocks if block.kind == "recomputed"}
    assert again
    assert again <= {name.replace("_recomputed", "") for name in variant["recomputed"]}
    assert {block.name for block in chart.planned.blocks if block.kind == "dropped"} <= again
    assert not any(block.kind in ("recomputed", "dropped") for block in chart.unplanned.blocks)
    costs = chart.planned.by_layer()
    for kind, key in (("kept", "kept_bytes"), ("recomputed", "recomputed_bytes")):
        expected = sum(block.bytes for block in chart.planned.blocks if block.kind == kind)
        assert sum(getattr(cost, key) for cost in costs) == expected
    assert sum(cost.seconds for cost in costs) == pytest.approx(chart.planned.seconds)


def assert_none_overlap(blocks: Any, size: int) -> None:
    """Asserts that blocks that are alive together lie beside each other, below ``size``."""
    assert max(block.offset + block.bytes for block in blocks) <= size
    for i, a in enumerate(blocks):
        for b in blocks[:i]:
            together = a.begin < b.end and b.begin < a.end
            assert not (together and a.offset < b.offset + b.bytes and b.offset < a.offset + a.bytes)


def test_addresses_of_blocks_that_are_alive_together_do_not_overlap() -> None:
    (chart,) = aten_recompute.report(trained_workload(steps=3)).charts()
    assert chart.arena, "a third step runs in an arena"
    placed = [block for block in chart.arena if block.offset >= 0]
    assert_none_overlap(chart.planned.blocks, chart.planned.arena_bytes)
    assert_none_overlap(placed, chart.arena_bytes)


def test_the_arena_is_that_of_the_report_and_names_operators() -> None:
    report = aten_recompute.report(trained_workload(steps=3))
    (chart,) = report.charts()
    arena = report["methods"][0]["specialisations"][0]["regions"][0]["variants"][0]["arena"]
    assert (chart.arena_bytes, len(chart.arena)) == (arena["bytes"], arena["blocks"])
    assert {block.kind for block in chart.arena} >= {"forward", "recomputed", "backward"}
    attention = [block for block in chart.arena if block.layer == "blocks.0.attention" and block.kind == "forward"]
    assert attention
    assert all("gpt.py:" in block.source or "functional.py:" in block.source for block in attention)
    assert f"{byte_text(arena['bytes'])} resident for {arena['blocks']} blocks" in str(report)


def test_the_trade_off_goes_from_the_peak_of_keeping_everything_downwards() -> None:
    (chart,) = aten_recompute.report(trained_workload()).charts(tradeoff=True)
    peaks = [point.peak_bytes for point in chart.tradeoff]
    seconds = [point.seconds for point in chart.tradeoff]
    assert len(peaks) > 3
    assert peaks == sorted(peaks, reverse=True)
    assert seconds == sorted(seconds)
    assert peaks[0] == chart.unplanned.peak_bytes
    assert chart.planned.peak_bytes in peaks
    assert chart.budget_bytes >= chart.planned.peak_bytes


def test_before_the_first_step_everything_says_so(tmp_path: Path) -> None:
    report = aten_recompute.report(lowered_copy(Net(), "budget", memory_budget=0.9))
    assert "nothing has been compiled yet: run a training step first" in str(report)
    assert "nothing has been compiled yet" in report._repr_html_()
    message = "nothing has been compiled yet: run a training step first, with gradients$"
    for name in ("to_html", "to_perfetto", "to_memory_viz"):
        with pytest.raises(ValueError, match=f"^{name}: {message}"):
            getattr(report, name)(tmp_path / "file")
    with pytest.raises(ValueError, match=f"^plot: {message}"):
        report.plot()
    assert not list(tmp_path.iterdir())


def test_without_a_profile_the_text_says_how_to_get_one(tmp_path: Path) -> None:
    report = aten_recompute.report(trained_net("all"))
    assert "not known: lower with profile=True" in str(report)
    assert "regions" in str(report)
    with pytest.raises(ValueError, match=r"^to_html: the module has no profile: lower with strategy budget"):
        report.to_html(tmp_path / "page.html")


def test_regions_and_breaks_are_named_with_their_reason() -> None:
    lowered = lowered_copy(Printing(), "budget", memory_budget=1.0)
    for _ in range(2):
        lowered(torch.rand(8, 16)).backward()
    report = aten_recompute.report(lowered)
    (chart,) = report.charts()
    assert chart.region == ""
    text = str(report)
    assert re.search(r"regions +2 in 1 specialization", text)
    assert re.search(r"break +prim::Print at .*several_regions\.py:\d+: ", text)
    plan = report["methods"][0]["specialisations"][0]["plans"][-1]
    assert chart.planned.peak_bytes == plan["predicted_peak_bytes"]


def test_regions_that_are_planned_one_by_one_have_a_chart_each() -> None:
    lowered = lowered_copy(Printing(), "segments")
    lowered(torch.rand(8, 16)).backward()
    report = aten_recompute.report(lowered)
    assert [chart.region for chart in report.charts()] == ["region 0", "region 1"]
    assert "forward, region 1" in str(report)
    regions = report["methods"][0]["specialisations"][0]["regions"]
    for chart, region in zip(report.charts(), regions, strict=True):
        assert chart.planned.peak_bytes == region["variants"][0]["predicted_peak_bytes"]


class TwoMethods(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 32)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(torch.sigmoid(self.a(x))).sum()

    @torch.jit.export
    def encode(self, x: Tensor) -> Tensor:
        return torch.relu(self.a(x)).exp().sum()


def test_each_method_has_a_part_and_plots_want_one_chosen() -> None:
    lowered = lowered_copy(TwoMethods(), "budget", memory_budget=1.0, methods=("forward", "encode"))
    x = torch.rand(64, 16)
    lowered(x).backward()
    text = str(aten_recompute.report(lowered))
    assert "forward: budget" in text
    assert re.search(r"encode: budget .*\n +state +nothing has been compiled yet", text)
    lowered.encode(x).backward()
    report = aten_recompute.report(lowered)
    assert [chart.method for chart in report.charts()] == ["forward", "encode"]
    with pytest.raises(ValueError, match=r"^plot: several methods have run \(forward, encode\); choose one"):
        report.plot()
    with pytest.raises(ValueError, match=r'^plot: no method "other" has run with a profile; there are forward, encode'):
        report.plot(method="other")
    assert "encode" in report.plot(method="encode").get_title()


def test_after_larger_inputs_the_newest_plan_is_shown() -> None:
    lowered = lowered_copy(Net(), "budget", memory_budget=1.0, of="largest")
    peaks = []
    for batch in (8, 64):
        lowered(torch.randn(batch, 16)).backward()
        report = aten_recompute.report(lowered)
        peaks.append(report.charts()[0].planned.peak_bytes)
        assert f"predicted {byte_text(peaks[-1])}" in str(report)
    assert peaks[1] > 2 * peaks[0]


def test_a_function_has_a_report_to_be_read() -> None:
    @torch.jit.script
    def function(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(torch.sigmoid(x @ w)).exp().sum()

    aten_recompute.enable(function, "budget", memory_budget=1.0)
    try:
        function(torch.rand(64, 64), torch.rand(64, 64, requires_grad=True)).backward()
        report = aten_recompute.report(function)
        assert "predicted" in str(report)
        assert len(report.charts()) == 1
    finally:
        aten_recompute.disable(function)


def test_notebooks_get_tables_and_a_picture_without_scripts() -> None:
    lowered = lowered_copy(Net(), "names", keywords=["<b>"], profile=True)
    lowered(torch.randn(64, 16)).backward()
    page = aten_recompute.report(lowered)._repr_html_()
    assert "<svg" in page
    assert page.count("<table>") == 3
    assert "<script" not in page
    assert "&lt;b&gt;" in page
    assert "<b>" not in page
