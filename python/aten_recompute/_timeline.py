"""The memory of a step as the library describes it, in terms that texts, pages, plots and traces share."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

KEPT = "kept"
RECOMPUTED = "recomputed"


@dataclass(frozen=True)
class Block:
    """A piece of memory that is alive during the moments ``begin`` to ``end - 1`` of a step."""

    name: str  #: of the value, "relu_3_result"; "workspace of aten::mm" for what is no value
    kind: str  #: "kept", "dropped", "temporary", "recomputed", "backward", "given", "workspace" or "loss"
    bytes: int
    begin: int
    end: int
    offset: int  #: predicted address within the memory of the step
    layer: str  #: path of the module that made it; "" if it is not known
    source: str  #: source line, "/models/gpt.py:33"; "" if it is not known


@dataclass(frozen=True)
class Moment:
    """An operator that runs in a step, or the loss."""

    name: str
    kind: str  #: "forward", "recomputed", "backward" or "loss"
    bytes: int  #: alive while it runs
    seconds: float
    layer: str
    source: str


@dataclass
class LayerCost:
    """What one layer keeps and recomputes in a step."""

    layer: str
    kept_bytes: int = 0
    recomputed_bytes: int = 0
    forward_seconds: float = 0.0
    backward_seconds: float = 0.0
    recompute_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return self.forward_seconds + self.backward_seconds + self.recompute_seconds


@dataclass
class Walk:
    """One step: its operators in their order, and its memory."""

    moments: list[Moment]
    blocks: list[Block]
    peak_bytes: int
    saved_bytes: int
    seconds: float
    arena_bytes: int  #: the addresses of ``blocks`` lie below it

    @cached_property
    def times(self) -> list[float]:
        """When each moment begins, and when the last one ends, in seconds."""
        times = [0.0]
        for moment in self.moments:
            times.append(times[-1] + moment.seconds)
        return times

    @property
    def peak_moment(self) -> int:
        return max(range(len(self.moments)), key=lambda i: self.moments[i].bytes, default=0)

    def alive_at(self, moment: int) -> list[Block]:
        """Returns the blocks that are alive then, the largest first."""
        alive = [block for block in self.blocks if block.begin <= moment < block.end]
        return sorted(alive, key=lambda block: -block.bytes)

    def largest(self, count: int) -> list[Block]:
        """Returns the largest values; one that is made several times counts once."""
        found: dict[str, Block] = {}
        for block in sorted(self.blocks, key=lambda block: (-block.bytes, block.begin)):
            if block.kind not in ("workspace", "loss"):
                found.setdefault(block.name, block)
                if len(found) == count:
                    break
        return list(found.values())

    def by_layer(self) -> list[LayerCost]:
        """Returns what each layer keeps and recomputes, in the order of the forward."""
        layers: dict[str, LayerCost] = {}
        for moment in self.moments:
            if moment.kind == "loss":
                continue
            cost = layers.setdefault(moment.layer, LayerCost(moment.layer))
            if moment.kind == "forward":
                cost.forward_seconds += moment.seconds
            elif moment.kind == "backward":
                cost.backward_seconds += moment.seconds
            else:
                cost.recompute_seconds += moment.seconds
        for block in self.blocks:
            if block.kind in (KEPT, RECOMPUTED):
                cost = layers.setdefault(block.layer, LayerCost(block.layer))
                if block.kind == KEPT:
                    cost.kept_bytes += block.bytes
                else:
                    cost.recomputed_bytes += block.bytes
        return list(layers.values())


@dataclass(frozen=True)
class TradeOff:
    """A plan that no other one beats in both peak and time."""

    peak_bytes: int
    saved_bytes: int
    seconds: float


@dataclass
class ArenaBlock:
    """What an operator allocates in the arena; ``begin`` and ``end`` count allocations and releases."""

    name: str
    kind: str  #: "forward", "recomputed", "backward" or "between"
    bytes: int
    begin: int
    end: int
    offset: int  #: -1: it outlives the step and is not placed
    layer: str
    source: str


@dataclass
class Chart:
    """What is known of one training step, or of one region of it where regions are planned one by one."""

    method: str
    class_name: str
    region: str  #: "" where it is the whole step
    budget_bytes: int  #: 0: there is none
    has_times: bool
    planned: Walk
    unplanned: Walk
    tradeoff: list[TradeOff] = field(default_factory=list)
    arena: list[ArenaBlock] = field(default_factory=list)
    arena_bytes: int = 0

    @property
    def title(self) -> str:
        name = f"{self.class_name}.{self.method}"
        return f"{name}, {self.region}" if self.region else name


def _rows(table: dict[str, Any], names: list[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[name] for name in names), strict=True)


def _text(texts: list[str], index: int) -> str:
    return texts[index] if index >= 0 else ""


def _walk_of(walk: dict[str, Any], chart: dict[str, Any], kinds: dict[str, list[str]]) -> Walk:
    names, layers, sources = chart["names"], chart["layers"], chart["sources"]
    moments = [
        Moment(
            _text(names, name), kinds["moment_kinds"][kind], size, seconds, _text(layers, layer), _text(sources, src)
        )
        for name, kind, size, seconds, layer, src in _rows(
            walk["moments"], ["name", "kind", "bytes", "seconds", "layer", "source"]
        )
    ]
    blocks = [
        Block(
            _text(names, name),
            kinds["block_kinds"][kind],
            *(size, begin, end, offset),
            _text(layers, layer),
            _text(sources, source),
        )
        for name, kind, size, begin, end, offset, layer, source in _rows(
            walk["blocks"], ["name", "kind", "bytes", "begin", "end", "offset", "layer", "source"]
        )
    ]
    figures = walk["peak_bytes"], walk["saved_bytes"], walk["seconds"], walk["blocks"]["arena_bytes"]
    return Walk(moments, blocks, *figures)


def _arena_of(arena: dict[str, Any] | None) -> tuple[list[ArenaBlock], int]:
    if not arena:
        return [], 0
    blocks = [
        ArenaBlock(
            _text(arena["names"], name),
            arena["kinds"][kind],
            *(size, begin, end, offset),
            _text(arena["layers"], layer),
            _text(arena["sources"], source),
        )
        for name, kind, size, begin, end, offset, layer, source in _rows(
            arena["blocks"], ["name", "kind", "bytes", "begin", "end", "offset", "layer", "source"]
        )
    ]
    return blocks, arena["bytes"]


def charts_of(text: str) -> list[Chart]:
    """Returns the charts in what the operator ``timeline`` returned."""
    data = json.loads(text)
    charts = []
    for method in data["methods"]:
        arena, arena_bytes = _arena_of(method.get("arena"))
        charts += [
            Chart(
                method["method"],
                method["class"],
                chart["region"],
                chart["budget_bytes"],
                chart["has_times"],
                _walk_of(chart["planned"], chart, data),
                _walk_of(chart["unplanned"], chart, data),
                [TradeOff(**point) for point in chart.get("tradeoff", [])],
                arena,
                arena_bytes,
            )
            for chart in method["charts"]
        ]
    return charts
