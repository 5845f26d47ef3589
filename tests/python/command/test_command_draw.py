"""``aten-recompute draw`` writes a picture or a trace, or nothing."""

import json
import os
import pickle
import pickletools
from pathlib import Path

import pytest
from torch.cuda import _memory_viz

from support.command_runs import INPUT, Command


def test_what_a_budget_recomputes_is_drawn(command: Command, model: str, tmp_path: Path) -> None:
    texts = []
    for name, arguments in (("all.dot", []), ("half.dot", ["--budget", "0.5"])):
        result = command("draw", model, name, "--input", INPUT, "--layer", "net.blocks.0", *arguments)
        assert (result.status, result.error, result.out) == (0, "", f"{name}: written\n")
        texts.append((tmp_path / name).read_text())
    assert all(text.startswith("digraph") for text in texts)
    assert texts[0] != texts[1]


def test_a_timeline_is_drawn(command: Command, model: str, tmp_path: Path) -> None:
    result = command("draw", model, "memory.dot", "--input", INPUT, "--what", "timeline", "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["what"] == "timeline"
    assert (tmp_path / "memory.dot").stat().st_size > 0


def test_a_trace_is_written_for_perfetto(command: Command, model: str, tmp_path: Path) -> None:
    arguments = ["--input", INPUT, "--budget", "0.5", "--what", "perfetto"]
    result = command("draw", model, "step.json", *arguments)
    assert (result.status, result.error, result.out) == (0, "", "step.json: written\n")
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    phases = [event["name"] for event in events if event.get("cat") == "phase" and event["pid"] == 1]
    assert phases[:3] == ["forward", "loss", "backward"]
    assert "recomputation" in phases
    assert max(event["args"]["bytes"] for event in events if event["ph"] == "C" and event["name"] == "memory") > 0


def test_a_snapshot_is_written_that_readers_of_pytorch_read(command: Command, model: str, tmp_path: Path) -> None:
    result = command("draw", model, "step.pickle", "--input", INPUT, "--what", "memory_viz")
    assert (result.status, result.error) == (0, "")
    content = (tmp_path / "step.pickle").read_bytes()
    operations = [each[0].name for each in pickletools.genops(content)]
    assert operations[0] == "PROTO"
    assert not {"GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ"} & set(operations)
    snapshot = pickle.loads(content)
    assert len(snapshot["device_traces"]) == len(snapshot["segments"]) >= 2
    assert all(isinstance(event["addr"], int) and event["addr"] >= 1 << 32 for event in snapshot["device_traces"][0])
    assert "segments: " in _memory_viz.segsum(snapshot)  # raises where sizes do not match
    assert _memory_viz.trace(snapshot).count("Device ") == len(snapshot["device_traces"])


@pytest.mark.parametrize(
    ("status", "output", "arguments", "part"),
    [
        (2, "out.jpg", [], ".jpg"),
        (2, "out.dot", ["--what", "sunset"], "--what"),
        (2, "out.dot", ["--layer", "nowhere"], "nowhere"),
        (2, "out.json", ["--what", "perfetto", "--layer", "net"], "--layer"),
        (4, "missing/out.dot", [], "missing/out.dot"),
        (4, "missing/out.json", ["--what", "perfetto"], "missing/out.json"),
        (5, "out.dot", ["--budget", "1KiB"], "the smallest that can be reached is"),
    ],
)
def test_what_is_wrong_leaves_no_file(
    command: Command, model: str, tmp_path: Path, status: int, output: str, arguments: list[str], part: str
) -> None:
    command("draw", model, output, "--input", INPUT, *arguments).fails(status, part)
    assert os.listdir(tmp_path) == []
