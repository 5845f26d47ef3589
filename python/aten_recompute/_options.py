"""The options that ``lower`` and ``enable`` accept: their types, and how they are passed to the library.

docs/options.md says what each one does.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence, Set
from typing import Any, Literal

from typing_extensions import TypedDict

from ._errors import InvalidOptionError

Strategy = str | Mapping[str, Any] | None


class _CommonOptions(TypedDict, total=False):
    """Options that every strategy accepts."""

    fullgraph: bool
    profile: bool
    accumulate: bool
    release_outputs: bool
    exact: bool
    fuse: bool
    save_ir: bool
    arena: Literal["keep", "release", "off"]


class _WordOptions(TypedDict, total=False):
    """Options of the strategies ``names`` and ``ops``."""

    keywords: Sequence[str]
    ops: Sequence[str]


class _LayerOptions(TypedDict, total=False):
    """Options of the strategies ``all``, ``layers`` and ``segments``, which decide about parts of the model."""

    start: int
    stride: int
    ratio: float
    pattern: str
    count: int


class _BudgetOptions(TypedDict, total=False):
    """Options of the strategy ``budget``, and the plan file that takes the place of a strategy."""

    memory_budget: float | str
    time_budget: float
    of: Literal["first", "largest"]
    unreachable: Literal["raise", "leanest"]
    leanest_time: float
    on_oom: Literal["raise", "retry_leaner"]
    cost_model: Literal["measured", "flops"]
    plan: str | dict[str, Any]


class _MinCutOptions(TypedDict, total=False):
    """Options of the strategy ``min_cut``, which docs/min_cut.md explains."""

    aggressive_recomputation: bool
    ban_if_long_fusible_chains: bool
    ban_if_materialized_backward: bool
    ban_if_not_in_allowlist: bool
    ban_if_reduction: bool
    ban_if_used_far_apart: bool
    compute_intensive_ops: Sequence[str]
    distance_weight: float
    max_dist_from_bw: int
    max_fusible_depth: int
    not_materialized_weight: float
    recomputable_ops: Sequence[str]
    recompute_random: bool
    recompute_views: bool
    reduction_ratio: float
    treat_parameters_as_free_to_save: bool


class LowerOptions(_CommonOptions, _WordOptions, _LayerOptions, _BudgetOptions, _MinCutOptions, total=False):
    """All options that ``lower`` accepts as keyword arguments beside the strategy.

    Strategies and their options:
        ``"none"``: nothing is recomputed.

        ``"budget"``: what the fastest plan recomputes whose peak memory fits. At least one budget is required; with
        both, the smallest peak within both is looked for.

        - ``memory_budget``: the peak of one step (forward and backward) above the memory in use before it. A number in
          (0, 1] is a fraction of the peak without recomputation, and so is a percentage such as ``"40%"``. A greater
          number is in bytes, and so is a string such as ``"600MiB"`` or ``"1.5 GB"``.
        - ``time_budget``: the time that one step may take, as a multiple (at least 1) of its time without
          recomputation. The plan with the smallest peak within that time is used.
        - ``of``: which peak without recomputation a fraction counts from. ``"first"`` (the default): that of the inputs
          that the plan is made for, which are the first ones and later ones that are larger. ``"largest"``: the largest
          one of all inputs so far; as larger inputs may follow, a fraction that is out of reach is no error then.
        - ``unreachable``: what happens if no plan keeps the budget. ``"raise"`` (the default): the call raises and
          names the smallest budget that can be kept. ``"leanest"``: a plan near the smallest peak runs, with a
          warning.
        - ``leanest_time``: the time that such a plan may take, as a multiple (at least 1, by default 2) of the time of
          a step without recomputation.
        - ``on_oom``: what happens where a call runs out of memory. ``"raise"`` (the default): it raises. With
          ``"retry_leaner"``, plans are made again under 0.7 of the peak under which that happened, and the call is made
          once more, with the same random numbers. Where a backward runs out of memory, it raises, and the next call
          follows leaner plans.
        - ``cost_model``: ``"measured"`` (the default) times the operators on this machine; ``"flops"`` computes their
          time from operations and bytes, so that every machine makes the same plan.

        ``"segments"``: everything but the boundaries of segments, which are single values that all paths through the
        region pass.

        - ``count``: the number of segments, at least 1. Without it, the planner decides.

        ``"min_cut"``: what PyTorch's min-cut partitioner would recompute. docs/min_cut.md explains its options. They
        are flags: ``aggressive_recomputation``, ``ban_if_long_fusible_chains``, ``ban_if_materialized_backward``,
        ``ban_if_not_in_allowlist``, ``ban_if_reduction``, ``ban_if_used_far_apart``, ``recompute_random``,
        ``recompute_views``, ``treat_parameters_as_free_to_save``; integers of at least 0: ``max_dist_from_bw``,
        ``max_fusible_depth``; numbers in [1, 1000]: ``distance_weight``, ``not_materialized_weight``,
        ``reduction_ratio``; and lists of operator names: ``compute_intensive_ops``, ``recomputable_ops``.

        ``"all"``: every activation of every layer; the inputs of the layers are kept. Short form: ``{"1": None}``.

        - ``pattern``: a regular expression (ECMAScript). A submodule is a layer if its whole path matches. Without it,
          layers are the children of a ``ModuleList`` or ``Sequential`` of equal modules; see ``inject_layer_tags`` and
          ``mark_layer``, too.

        ``"layers"``: the activations of some layers.

        - ``start`` and ``stride``: the layers start, start + stride, and so on; by default 0 and 1. Short form:
          ``{"3": [0, 2]}``.
        - ``ratio``: this fraction of the layers, in (0, 1], counted from the first one. Short form: ``{"4": 0.5}``.
        - ``pattern``: as for ``"all"``.

        ``"names"``: the values whose names contain a keyword. ``report`` lists the names.

        - ``keywords``: a non-empty list of strings. A leading ``%``, as the IR prints names, is ignored. Short form:
          ``{"2": ["relu"]}``.

        ``"ops"``: the results of operators.

        - ``ops``: a non-empty list of names of ATen operators, such as ``"relu"``. Short form: ``{"5": ["relu"]}``.

        A plan file takes the place of a strategy:

        - ``plan``: the path of a file that ``save_plan`` wrote, or its content as a dict. ``cost_model`` may be given
          beside it.

    Options of every strategy:
        - ``fullgraph``: whether a method that needs more than one region is an error. Default: False.
        - ``profile``: whether operators are measured and the peak is predicted even if the strategy needs neither.
          Default: False.
        - ``accumulate``: whether gradients exist before each step, as in gradient accumulation or with
          ``zero_grad(set_to_none=False)``. By default a step is assumed to begin without gradients, so that each
          parameter gradient is new memory.
        - ``release_outputs``: whether the outputs, and everything of their size that the loss needs, are freed before
          the backward of the region. By default outputs are assumed to be alive until the end of the step.
        - ``exact``: whether results have the bits of eager PyTorch's (the default). With False, images lie with their
          channels last in memory where that is measured to be faster, and results differ in the last bits.
        - ``fuse``: whether one operator may compute several of the module where it gives the same bits: a batch norm
          and the relu, relu6 or hardtanh after it. Default: True.
        - ``save_ir``: whether forward and backward before and after recomputation are written to files as IR, code and
          pictures, below the folder ``IR_artifacts`` (docs/drawings.md). Default: False.
        - ``arena``: the tensors of a step on the CPU lie at planned places in one piece of memory. ``"keep"`` (the
          default) keeps it between steps, ``"release"`` gives it back to the system after each step, and ``"off"``
          leaves all tensors to PyTorch's allocator.
    """


def plain(value: Any) -> Any:
    """Returns an option's value as JSON has it: paths, tuples, and numbers of other libraries are accepted, too."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number, so the library sees, and refuses, its name
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):  # of NumPy and PyTorch, scalars included
        return plain(value.tolist())
    if isinstance(value, Sequence | Set):
        return [plain(each) for each in value]
    raise TypeError(f"aten_recompute: an option is a number, text, a list or a dict, not {type(value).__name__}")


def spec_of(strategy: Strategy, options: Mapping[str, Any]) -> str:
    """Returns the strategy and its options as the JSON that the library reads."""
    options = plain(options)
    if isinstance(strategy, Mapping):
        return json.dumps({**plain(strategy), **options})
    if isinstance(strategy, str) and strategy.lstrip().startswith("{"):
        if options:
            raise InvalidOptionError(
                "options belong inside the JSON when the strategy is given as JSON, not beside it: "
                + ", ".join(options)
            )
        return strategy
    if isinstance(strategy, str):
        options = {"strategy": strategy, **options}
    elif strategy is not None:
        raise TypeError(f"strategy is a name, a dict or a JSON string, not {type(strategy).__name__}")
    return json.dumps(options) if options else ""
