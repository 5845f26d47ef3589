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
    """All options that ``lower`` accepts as keyword arguments beside the strategy."""


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
