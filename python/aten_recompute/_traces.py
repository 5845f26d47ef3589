"""A training step in the formats of Perfetto and of PyTorch's memory_viz."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from ._timeline import ArenaBlock, Block, Chart, Walk

_PHASES = {"forward": "forward", "recomputed": "recomputation", "backward": "backward", "loss": "loss"}
_WHERE_ADDRESSES_BEGIN = 0x7F00_0000_0000
_BETWEEN_DEVICES = 1 << 40


def _times(walk: Walk, has_times: bool) -> list[float]:
    """Returns when each moment begins and when the last one ends, in microseconds; without times one for each."""
    if has_times:
        return [1e6 * time for time in walk.times]
    return [float(i) for i in range(len(walk.moments) + 1)]


def walks_of(chart: Chart) -> Iterator[tuple[str, Walk]]:
    """Yields the two steps of a chart, each with its name."""
    yield f"{chart.title}, as planned", chart.planned
    yield f"{chart.title}, with nothing recomputed", chart.unplanned


def _slice(name: str, category: str, begin: float, end: float, pid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "ts": begin,
        "dur": end - begin,
        "pid": pid,
        "tid": 1,
        "args": args,
    }


def _slices(walk: Walk, times: list[float], pid: int) -> Iterator[dict[str, Any]]:
    """Yields slices of phases, in these of layers, and in these of operators."""
    for kind, phase in groupby(enumerate(walk.moments), key=lambda each: each[1].kind):
        in_phase = list(phase)
        first, last = in_phase[0][0], in_phase[-1][0]
        yield _slice(_PHASES[kind], "phase", times[first], times[last + 1], pid, {})
        for layer, part in groupby(in_phase, key=lambda each: each[1].layer):
            in_layer = list(part)
            first, last = in_layer[0][0], in_layer[-1][0]
            if layer:
                yield _slice(layer, "layer", times[first], times[last + 1], pid, {"phase": _PHASES[kind]})
            for i, moment in in_layer:
                args = {"phase": _PHASES[kind], "layer": layer, "source": moment.source, "bytes": moment.bytes}
                yield _slice(moment.name, "operator", times[i], times[i + 1], pid, args)


def _counters(walk: Walk, times: list[float], pid: int) -> Iterator[dict[str, Any]]:
    """Yields the memory that is alive, all of it and that of values by what became of them."""
    kinds = {"kept": "kept for the backward", "recomputed": "computed again"}
    changes: dict[str, list[int]] = {kind: [0] * (len(walk.moments) + 1) for kind in kinds}
    for block in walk.blocks:
        if block.kind in kinds:
            changes[block.kind][block.begin] += block.bytes
            changes[block.kind][block.end] -= block.bytes
    alive = dict.fromkeys(kinds, 0)
    for i, moment in enumerate(walk.moments):
        common = {"ph": "C", "ts": times[i], "pid": pid}
        yield {**common, "name": "memory", "args": {"bytes": moment.bytes}}
        for kind, name in kinds.items():
            if changes[kind][i] or i == 0:
                alive[kind] += changes[kind][i]
                yield {**common, "name": f"memory {name}", "args": {"bytes": alive[kind]}}


def perfetto_of(charts: list[Chart]) -> dict[str, Any]:
    """Returns the charts as a Chrome trace: one process for each step."""
    events: list[dict[str, Any]] = []
    pid = 0
    for chart in charts:
        for name, walk in walks_of(chart):
            pid += 1
            events.append({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
            events.append({"name": "process_sort_index", "ph": "M", "pid": pid, "args": {"sort_index": pid}})
            events.append({"name": "thread_name", "ph": "M", "pid": pid, "tid": 1, "args": {"name": "operators"}})
            times = _times(walk, chart.has_times)
            events += _slices(walk, times, pid)
            events += _counters(walk, times, pid)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _frames(block: Block | ArenaBlock) -> list[dict[str, Any]]:
    file, _, number = block.source.rpartition(":")
    if not number.isdigit():
        file, number = block.source, "0"
    frames = [{"filename": file or "unknown", "line": int(number), "name": f"{block.name} ({block.kind})"}]
    names = block.layer.split(".") if block.layer else []
    frames += [{"filename": "layer", "line": 0, "name": ".".join(names[:end])} for end in range(len(names), 0, -1)]
    return frames


def _device_trace(
    blocks: Iterable[Block | ArenaBlock], times: list[float], last: int, base: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the allocations and releases of a step in their order, and the blocks that are alive at its end."""
    order: list[tuple[int, int, Any]] = []
    kept = []
    for block in blocks:
        if block.bytes <= 0:
            continue
        order.append((block.begin, 1, block))
        if block.end < last:
            order.append((block.end, 0, block))
        else:
            kept.append(block)
    events = []
    # At one moment, what ends comes before what begins: its memory may be taken over.
    for moment, begins, block in sorted(order, key=lambda each: each[:2]):
        common = {
            "addr": base + block.offset,
            "size": block.bytes,
            "stream": 0,
            "time_us": int(times[moment]),
            "frames": _frames(block),
        }
        if begins:
            events.append({**common, "action": "alloc"})
        else:
            events += [{**common, "action": "free_requested"}, {**common, "action": "free_completed"}]
    alive = [
        {
            "address": base + block.offset,
            "size": block.bytes,
            "requested_size": block.bytes,
            "state": "active_allocated",
            "frames": _frames(block),
        }
        for block in sorted(kept, key=lambda each: each.offset)
    ]
    return events, alive


def _segment(device: int, base: int, size: int, alive: list[dict[str, Any]]) -> dict[str, Any]:
    blocks = []
    address = base
    for block in alive:
        if block["address"] > address:
            blocks.append(_gap(address, block["address"]))
        blocks.append(block)
        address = block["address"] + block["size"]
    if address < base + size:
        blocks.append(_gap(address, base + size))
    used = sum(block["size"] for block in alive)
    return {
        "device": device,
        "address": base,
        "total_size": size,
        "allocated_size": used,
        "active_size": used,
        "requested_size": used,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
    }


def _gap(begin: int, end: int) -> dict[str, Any]:
    return {"address": begin, "size": end - begin, "requested_size": 0, "state": "inactive", "frames": []}


def snapshot_of(charts: list[Chart]) -> dict[str, Any]:
    """Returns the charts in the format of ``torch.cuda.memory._snapshot()``: one device for each step.

    Where the arena of the steps is known, it is one device more, with what the operators of this process allocate.
    """
    snapshot: dict[str, Any] = {"segments": [], "device_traces": [], "allocator_settings": {}, "devices": []}

    def add(name: str, blocks: list[Any], times: list[float], last: int, size: int) -> None:
        device = len(snapshot["device_traces"])
        base = _WHERE_ADDRESSES_BEGIN + device * _BETWEEN_DEVICES
        events, alive = _device_trace(blocks, times, last, base)
        snapshot["devices"].append(name)
        snapshot["device_traces"].append(events)
        snapshot["segments"].append(_segment(device, base, size, alive))

    with_arena: set[str] = set()  # methods; the charts of their regions share an arena
    for chart in charts:
        for name, walk in walks_of(chart):
            add(name, walk.blocks, _times(walk, chart.has_times), len(walk.moments), walk.arena_bytes)
        placed = [block for block in chart.arena if block.offset >= 0]
        if placed and chart.method not in with_arena:
            with_arena.add(chart.method)
            last = max(block.end for block in chart.arena) + 1
            name = f"{chart.class_name}.{chart.method}, the arena of its steps"
            add(name, placed, [float(i) for i in range(last + 1)], last, chart.arena_bytes)
    return snapshot
