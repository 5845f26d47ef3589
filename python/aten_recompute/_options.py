"""The types of the options that ``lower`` accepts; the docstring of ``lower`` says what each one does."""

from collections.abc import Sequence
from typing import Any, Literal

from typing_extensions import TypedDict


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


class _LayerOptions(TypedDict, total=False):
    """Options of the strategies ``names``, ``ops``, ``all``, ``layers`` and ``segments``."""

    keywords: Sequence[str]
    ops: Sequence[str]
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


class LowerOptions(_CommonOptions, _LayerOptions, _BudgetOptions, _MinCutOptions, total=False):
    """All options that ``lower`` accepts as keyword arguments beside the strategy."""
