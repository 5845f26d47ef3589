"""The types of what a report holds: those of its JSON."""

from typing import Any, TypedDict

from typing_extensions import NotRequired

from ._errors import PeakOperator


class Metrics(TypedDict):
    """What a plan predicts, and what making it cost. Without a profile all numbers are 0."""

    predicted_peak_bytes: int  # of one step, above the memory in use before it
    peak_operator: PeakOperator  # where that peak is; without a name if nothing was profiled
    unplanned_peak_bytes: int  # the same if everything that the backward reads is kept
    predicted_saved_bytes: int  # memory in use between the forward and the backward
    outside_bytes: int  # the part of it that operators outside of regions keep
    other_calls: float  # calls that wait for their backward beside this one; a smaller one is a part of one
    predicted_seconds: float  # of the forward and the backward
    unplanned_seconds: float  # the same if nothing is recomputed
    profile_seconds: float  # time that measuring the operators took
    plan_seconds: float  # time that planning took
    nodes: int  # operators of the forward and the backward
    profiled_classes: int  # kinds of operators that were measured


class MethodPlan(Metrics):
    """A plan that several regions of a method share."""

    measured_saved_bytes: NotRequired[int]  # once a step has been watched
    measured_peak_bytes: NotRequired[int]


class Banned(TypedDict):
    """An operator that ``min_cut`` does not recompute."""

    value: str
    reason: str


class ArenaFigures(TypedDict):
    """The piece of memory that the tensors of a step lie in (docs/memory.md)."""

    bytes: int  # 0 until a step has been recorded
    alive_bytes: int  # the most that is alive in it at once
    blocks: int  # tensors and workspaces that a step allocates
    steps: int  # that began with this region
    recorded_steps: int
    unforeseen_blocks: int  # what PyTorch's allocator had to serve instead, over all steps
    unforeseen_bytes: int


class Variant(Metrics):
    """A region, compiled for one set of inputs that require grad (and, under a budget, for their sizes)."""

    measured_peak_bytes: NotRequired[int]  # on a CPU, once a step has been watched
    forward_operators: int
    backward_operators: int
    stages: int  # autograd nodes that the backward is divided into
    saved: list[str]  # names of the intermediate values that are kept for the backward
    recomputed: list[str]  # names of the values that are computed again
    banned: list[Banned]
    channels_last: bool  # whether images have their channels last in memory (``exact=False``)
    slices: int  # how many stretches of operators run slice by slice (``exact=False``)
    on_tape: list[str]  # operators without a gradient rule, which autograd differentiates
    gradients_by: dict[str, dict[str, int]]  # "rule", "user_rule", "tape": how often each operator occurs
    arena: ArenaFigures


class Region(TypedDict):
    """A part of a method that is differentiated ahead of time."""

    variants: list[Variant]


class Break(TypedDict):
    """A node of the graph that no region can contain."""

    node: str
    reason: str
    location: str  # the source line, where it is known


class Specialization(TypedDict):
    """A method, compiled for the ranks and types of one set of arguments."""

    regions: list[Region]
    breaks: list[Break]
    plans: list[MethodPlan]


class UnplannedCalls(TypedDict):
    """Calls that ran as plain TorchScript, without a plan."""

    reason: str  # such as "autocast is on"
    calls: int


class MethodReport(TypedDict):
    """What has been compiled of one lowered method."""

    method: str
    options: dict[str, Any]
    specialisations: list[Specialization]
    unplanned_calls: list[UnplannedCalls]
    leaner_budget_bytes: NotRequired[int]  # that replaces the budget after memory ran out


class ReportDict(TypedDict):
    """What has been compiled of a lowered module."""

    methods: list[MethodReport]
