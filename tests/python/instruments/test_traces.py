"""Traces for Perfetto and for PyTorch's memory_viz."""

import json
import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
from torch.cuda import _memory_viz

import aten_recompute
from instruments.test_report import trained_net, trained_workload


@pytest.fixture(scope="module")
def report() -> Any:
    return aten_recompute.report(trained_workload(steps=3))


@pytest.fixture(scope="module")
def trace(report: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    report.to_perfetto(path)
    content = json.loads(path.read_text())
    assert content["displayTimeUnit"] == "ms"
    events: list[dict[str, Any]] = content["traceEvents"]
    return events


def of_process(trace: list[dict[str, Any]], pid: int, kind: str) -> list[dict[str, Any]]:
    return [event for event in trace if event["pid"] == pid and event["ph"] == kind]


def test_each_event_has_what_its_kind_requires(trace: list[dict[str, Any]]) -> None:
    """The fields that the format of Chrome's traces requires."""
    required = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid", "args"},
        "C": {"name", "ts", "pid", "args"},
        "M": {"name", "pid", "args"},
    }
    for event in trace:
        assert event.keys() >= required[event["ph"]]
        assert all(event.get(key, 0) >= 0 for key in ("ts", "dur"))
    names = [event["args"]["name"] for event in trace if event["name"] == "process_name"]
    assert names == ["GPT.forward, as planned", "GPT.forward, with nothing recomputed"]


def test_slices_lie_in_each_other(trace: list[dict[str, Any]]) -> None:
    """Operators in layers, layers in phases: a viewer puts slices of one thread below each other only then."""
    slices = of_process(trace, 1, "X")
    open_slices: list[tuple[str, float]] = []
    order = {"phase": 0, "layer": 1, "operator": 2}
    for event in slices:
        begin, end = event["ts"], event["ts"] + event["dur"]
        while open_slices and (open_slices[-1][1] <= begin + 1e-6 or order[open_slices[-1][0]] >= order[event["cat"]]):
            open_slices.pop()
        if open_slices:
            assert end <= open_slices[-1][1] + 1e-6
        open_slices.append((event["cat"], end))
        assert begin >= 0
    assert {event["name"] for event in slices if event["cat"] == "phase"} == {
        *("forward", "recomputation", "backward", "loss")
    }
    assert any(event["name"] == "blocks.1.attention" for event in slices if event["cat"] == "layer")


def test_slices_and_counters_are_those_of_the_report(report: Any, trace: list[dict[str, Any]]) -> None:
    (chart,) = report.charts()
    for pid, walk in ((1, chart.planned), (2, chart.unplanned)):
        operators = [event for event in of_process(trace, pid, "X") if event["cat"] == "operator"]
        assert [event["name"] for event in operators] == [moment.name for moment in walk.moments]
        phases = [event["args"]["phase"] for event in operators]
        assert phases.count("recomputation") == sum(moment.kind == "recomputed" for moment in walk.moments)
        assert sum(event["dur"] for event in operators) == pytest.approx(1e6 * walk.seconds)
        memory = [event["args"]["bytes"] for event in of_process(trace, pid, "C") if event["name"] == "memory"]
        assert max(memory) == walk.peak_bytes
    again = "memory computed again"
    assert any(event["args"]["bytes"] for event in of_process(trace, 1, "C") if event["name"] == again)
    assert not any(event["args"]["bytes"] for event in of_process(trace, 2, "C") if event["name"] == again)


def test_a_snapshot_is_a_pickle_of_protocol_4_of_plain_objects(report: Any, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    report.to_memory_viz(path)
    operations = list(pickletools.genops(path.read_bytes()))
    assert operations[0][0].name == "PROTO"
    assert operations[0][1] == 4
    # The page memory_viz has a reader of its own that knows no classes.
    assert not [each[0].name for each in operations if each[0].name in ("GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ")]


def peaks_of(snapshot: dict[str, Any]) -> list[int]:
    """Replays the events of each device; an address is free before it is allocated."""
    peaks = []
    for events in snapshot["device_traces"]:
        alive: dict[int, int] = {}
        peak = 0
        for event in events:
            if event["action"] == "alloc":
                assert event["addr"] not in alive
                alive[event["addr"]] = event["size"]
                peak = max(peak, sum(alive.values()))
            elif event["action"] == "free_completed":
                assert alive.pop(event["addr"]) == event["size"]
        peaks.append(peak)
    return peaks


def test_what_reads_snapshots_of_pytorch_reads_ours(report: Any, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    report.to_memory_viz(path)
    snapshot = pickle.loads(path.read_bytes())
    (chart,) = report.charts()
    planned, unplanned, arena = peaks_of(snapshot)
    assert (planned, unplanned) == (chart.planned.peak_bytes, chart.unplanned.peak_bytes)
    assert 0 < arena <= chart.arena_bytes
    for segment in snapshot["segments"]:
        assert sum(block["size"] for block in segment["blocks"]) == segment["total_size"]
    described = _memory_viz.segsum(snapshot)  # raises where sizes do not match
    assert "segments: 3" in described
    listing = _memory_viz.trace(snapshot)
    assert listing.count("Device ") == 3
    page = _memory_viz.trace_plot(snapshot)
    assert len(page) > 10_000
    frames = [event["frames"] for event in snapshot["device_traces"][0]]
    assert any(frame["name"] == "blocks.0.attention" for each in frames for frame in each)
    assert any(each[0]["filename"].endswith("gpt.py") and each[0]["line"] > 0 for each in frames)


def test_without_times_each_operator_takes_a_microsecond(tmp_path: Path) -> None:
    """Of a module with a profile that has no times, the trace shows the order."""
    report = aten_recompute.report(trained_net("segments"))
    report.charts()
    described = json.loads(report._described[False])
    for chart in described["methods"][0]["charts"]:
        chart["has_times"] = False
    report._described[False] = json.dumps(described)
    report.to_perfetto(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    operators = [event for event in of_process(events, 1, "X") if event["cat"] == "operator"]
    assert [event["ts"] for event in operators] == list(range(len(operators)))
    assert {event["dur"] for event in operators} == {1.0}
