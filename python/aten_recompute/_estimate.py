"""Predicts what a training step takes, and profiles the operators of a method."""

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from typing_extensions import NotRequired, TypedDict

from ._errors import PREFIX, first_line, typed_error
from ._files import write_whole
from ._options import plain
from ._targets import script_module
from ._texts import byte_text, flop_text, millisecond_text, table_text

Budget = float | int | str


class BudgetEstimate(TypedDict):
    """What is predicted for one budget. The fields after ``reachable`` are missing if no plan keeps it."""

    budget: Budget
    budget_bytes: int
    reachable: bool
    peak_bytes: NotRequired[int]
    saved_bytes: NotRequired[int]  # alive between forward and backward
    recomputed_flops: NotRequired[float]
    time_factor: NotRequired[float]  # of the computed time of a step without recomputation


class PeakEstimate(TypedDict):
    """The plan with the smallest peak."""

    peak_bytes: int
    saved_bytes: int
    recomputed_flops: float
    time_factor: float


class Estimate(TypedDict):
    """What ``estimate`` returns."""

    unplanned_peak_bytes: int  # of a step in which nothing is recomputed
    unplanned_saved_bytes: int
    smallest_peak_bytes: int  # that can be reached
    smallest: PeakEstimate
    forward_flops: float
    backward_flops: float
    budgets: list[BudgetEstimate]
    device: str
    regions: int
    seconds: float  # that the estimate took


@dataclass(frozen=True)
class TensorInfo:
    """A result of a node."""

    name: str
    sizes: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NodeProfile:
    """One operator of the forward or the backward."""

    region: int
    phase: str  # "forward" or "backward"
    operator: str  # "aten::linear"
    module: str  # path of the module, "blocks.0.attention"; "" for the root
    layer: int | None  # number of the layer that strategies "all" and "layers" decide about
    backward_of: str | None  # in the backward: the operator whose gradient it computes
    results: tuple[TensorInfo, ...]
    bytes: int  # of new memory for the results
    kept_bytes: int  # of these, what the backward keeps if nothing is recomputed
    workspace_bytes: int  # needed while it runs
    flops: float
    seconds: float | None  # None on meta tensors


@dataclass(frozen=True)
class ModuleProfile:
    """The sums over the operators of one module, with those of the modules in it."""

    module: str
    nodes: int  # of the forward
    bytes: int  # that the forward allocates for results
    kept_bytes: int
    forward_flops: float
    backward_flops: float
    forward_seconds: float | None
    backward_seconds: float | None


def _add(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a + b


class Profile:
    """What ``profile`` returns. ``print(profile)`` shows the table by module.

    Attributes:
        nodes: the operators in the order in which they run: ``NodeProfile`` objects.
        breaks: the nodes that no region can contain, each with its ``reason`` and source ``location``.
        device: the device that the figures hold for.
        meta: whether nothing ran.
        regions: the number of regions.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.nodes = [
            NodeProfile(
                **{
                    **node,
                    "results": tuple(
                        TensorInfo(each["name"], tuple(each["sizes"]), each["dtype"]) for each in node["results"]
                    ),
                }
            )
            for node in data["nodes"]
        ]
        self.breaks: list[dict[str, str]] = data["breaks"]
        self.device: str = data["device"]
        self.meta: bool = data["meta"]
        self.method: str = data["method"]
        self.regions: int = data["regions"]

    def modules(self, depth: int | None = None) -> list[ModuleProfile]:
        """Returns the sums for each module, in the order in which they first run; the first one is the whole method.

        Args:
            depth: the number of names in a path beyond which modules have no row of their own, such as 2 for
                ``blocks.0``. By default all have one.
        """
        sums: dict[str, ModuleProfile] = {}
        for node in self.nodes:
            for path in _prefixes(node.module, depth):
                before = sums.get(
                    path, ModuleProfile(path, 0, 0, 0, 0.0, 0.0, *((None, None) if self.meta else (0.0, 0.0)))
                )
                sums[path] = _with_node(before, node)
        return list(sums.values())

    def table(self, by: str = "module", depth: int | None = 2, limit: int | None = None) -> str:
        """Returns a table as text.

        Args:
            by: ``"module"``: one row for each module, with the sums of what is in it. ``"node"``: one row for each
                operator.
            depth: for modules: see ``modules``.
            limit: how many rows there are at most; of nodes those with the most bytes, in their order.
        """
        if by not in ("module", "node"):
            raise ValueError(f'Profile.table: by is "module" or "node", not {by!r}')
        return self._module_table(depth, limit) if by == "module" else self._node_table(limit)

    def _module_table(self, depth: int | None, limit: int | None) -> str:
        header = ["module", "operators", "results", "kept", "forward", "backward"]
        if not self.meta:
            header += ["forward ms", "backward ms"]
        rows = []
        for each in self.modules(depth)[:limit]:
            row = [each.module or "(all)", str(each.nodes), byte_text(each.bytes), byte_text(each.kept_bytes)]
            row += [flop_text(each.forward_flops), flop_text(each.backward_flops)]
            if not self.meta:
                row += [millisecond_text(each.forward_seconds), millisecond_text(each.backward_seconds)]
            rows.append(row)
        return table_text(header, rows, left=1)

    def _node_table(self, limit: int | None) -> str:
        header = ["phase", "operator", "module", "result", "bytes", "kept", "workspace", "operations"]
        if not self.meta:
            header.append("ms")
        shown = set(sorted(range(len(self.nodes)), key=lambda i: -self.nodes[i].bytes)[:limit])
        rows = []
        for i, node in enumerate(self.nodes):
            if i not in shown:
                continue
            first = node.results[0] if node.results else None
            result = "" if first is None else f"{first.dtype}{list(first.sizes)}"
            row = [node.phase, node.operator, node.module, result, byte_text(node.bytes), byte_text(node.kept_bytes)]
            row += [byte_text(node.workspace_bytes), flop_text(node.flops)]
            if not self.meta:
                row.append(millisecond_text(node.seconds))
            rows.append(row)
        return table_text(header, rows, left=4)

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as dicts, lists, strings and numbers, which ``json.dumps`` accepts."""
        return {
            "device": self.device,
            "meta": self.meta,
            "method": self.method,
            "regions": self.regions,
            "breaks": self.breaks,
            "nodes": [asdict(node) for node in self.nodes],
            "modules": [asdict(each) for each in self.modules()],
        }

    def to_csv(self, path: str | os.PathLike[str] | None = None, by: str = "node") -> str:
        """Returns the nodes, or with ``by="module"`` the modules, as CSV, and writes it to ``path`` if there is one.

        Raises ValueError for another ``by``, and OSError if the file cannot be written; an earlier one stays then.
        """
        if by not in ("module", "node"):
            raise ValueError(f'Profile.to_csv: by is "module" or "node", not {by!r}')
        text = io.StringIO()
        rows = [asdict(each) for each in (self.nodes if by == "node" else self.modules())]
        fields = list(NodeProfile.__dataclass_fields__ if by == "node" else ModuleProfile.__dataclass_fields__)
        writer = csv.DictWriter(text, fields, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            if by == "node":
                row["results"] = "; ".join(f"{r['dtype']}{list(r['sizes'])}" for r in row["results"])
            writer.writerow(row)
        if path is not None:
            write_whole(path, text.getvalue().encode(), "Profile.to_csv")
        return text.getvalue()

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return f"<Profile of {self.method}: {len(self.nodes)} operators on {self.device}>"


def _prefixes(path: str, depth: int | None) -> Iterator[str]:
    """Yields "", "blocks", "blocks.0" for "blocks.0", at most ``depth`` names long."""
    yield ""
    names = path.split(".") if path else []
    for end in range(1, len(names[:depth]) + 1):
        yield ".".join(names[:end])


def _with_node(before: ModuleProfile, node: NodeProfile) -> ModuleProfile:
    if node.phase == "forward":
        return ModuleProfile(
            before.module,
            before.nodes + 1,
            before.bytes + node.bytes,
            before.kept_bytes + node.kept_bytes,
            before.forward_flops + node.flops,
            before.backward_flops,
            _add(before.forward_seconds, node.seconds),
            before.backward_seconds,
        )
    return ModuleProfile(
        before.module,
        before.nodes,
        before.bytes,
        before.kept_bytes,
        before.forward_flops,
        before.backward_flops + node.flops,
        before.forward_seconds,
        _add(before.backward_seconds, node.seconds),
    )


def _call(operator: Any, function: str, *arguments: Any) -> Any:
    """Calls an operator of the library. An error that a user can mend becomes a ValueError of one line."""
    try:
        return json.loads(operator(*arguments))
    except (RuntimeError, ValueError) as error:
        message = first_line(error)
        if not message.startswith(PREFIX):
            raise
    shown = f"{function}: {message.removeprefix(PREFIX).removeprefix(f'{function}: ')}"
    typed = typed_error(message, shown)
    raise typed if isinstance(typed, ValueError) else ValueError(shown)


def estimate(
    module: torch.jit.ScriptModule,
    inputs: Any,
    budgets: Sequence[Budget] | Budget = (),
    *,
    method: str = "forward",
    device: str | torch.device | None = None,
    **options: Any,
) -> Estimate:
    """Predicts the memory of one training step without running it.

    Nothing of the size of the module is allocated: tensors are described by their sizes. The module and the inputs may
    have real tensors or such of the meta device, as in ``with torch.device("meta"): model = Model()``.

    Args:
        module: a scripted or traced module; it may be lowered. It is not changed.
        inputs: the arguments of the method: a tuple or list, or a single tensor.
        budgets: values of the option ``memory_budget``, or a single one: fractions of the peak without recomputation,
            bytes, or texts such as ``"40%"`` and ``"600MiB"``.
        method: the name of the method.
        device: the device on which the step would run; by default that of the tensors, or the CPU for meta tensors.
        **options: further options of the strategy ``budget`` that change the peak, such as ``accumulate`` and
            ``release_outputs`` (see ``lower``).

    Returns:
        A dict with ``unplanned_peak_bytes``, the peak with nothing recomputed, ``smallest_peak_bytes``, the smallest
        one that can be reached, and ``budgets``: for each budget whether it is ``reachable``, the predicted
        ``peak_bytes``, and the floating-point operations that are recomputed (docs/profile.md).

    Raises:
        ValueError: a budget, an option or the method is invalid; data decide what the method does; or an operator's
            results are not known without running it. The message is one line.
        TypeError: ``module`` is not scripted or traced.
    """
    module = script_module(module, "estimate")
    plain_budgets = plain(budgets)
    several = isinstance(plain_budgets, list)
    texts = [
        budget if isinstance(budget, str) else json.dumps(budget)
        for budget in (plain_budgets if several else [plain_budgets])
    ]
    result = _call(
        torch.ops.aten_recompute.estimate,
        "estimate",
        module._c,
        _arguments(inputs),
        texts,
        method,
        "" if device is None else str(device),
        json.dumps(plain(options)),
    )
    given_budgets = list(cast(Sequence[Budget], budgets)) if several else [cast(Budget, budgets)]
    for given, each in zip(given_budgets, result["budgets"], strict=True):
        each["budget"] = given
    return cast(Estimate, result)


def profile(
    module: torch.jit.ScriptModule,
    inputs: Any,
    device: str | torch.device | None = None,
    meta: bool = False,
    *,
    method: str = "forward",
    **options: Any,
) -> Profile:
    """Tells what each operator of a training step costs, and each module.

    By default the method runs once, without effects on buffers and random states, and one operator of each kind is
    timed. With ``meta``, nothing runs and nothing of the size of the module is allocated.

    Args:
        module: a scripted or traced module; it may be lowered. It is not changed.
        inputs: the arguments of the method: a tuple or list, or a single tensor. With ``meta`` they, and the
            parameters, may be on the meta device.
        device: the device that the figures are for; by default that of the tensors, or the CPU for meta tensors.
            Without ``meta``, module and inputs have to be there.
        meta: whether only sizes and operations are computed; there are no seconds then.
        method: the name of the method.
        **options: ``accumulate``, as for ``lower``.

    Returns:
        A ``Profile``: ``print`` shows a table, ``nodes`` and ``modules()`` have the figures, and ``to_dict`` and
        ``to_csv`` export them. For each operator there are the sizes, types and bytes of its results, the bytes that
        the backward keeps of them, its floating-point operations, and its seconds.

    Raises:
        ValueError: as for ``estimate``, or a tensor is not on ``device``.
        TypeError: ``module`` is not scripted or traced.
    """
    module = script_module(module, "profile")
    return Profile(
        _call(
            torch.ops.aten_recompute.profile,
            "profile",
            module._c,
            _arguments(inputs),
            bool(meta),
            method,
            "" if device is None else str(device),
            json.dumps(plain(options)) if options else "",
        )
    )


def _arguments(inputs: Any) -> list[Any]:
    return list(inputs) if isinstance(inputs, tuple | list) else [inputs]
