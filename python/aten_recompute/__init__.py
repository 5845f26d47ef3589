"""Trains TorchScript modules in less memory.

    model = torch.jit.script(GPT())
    lowered = aten_recompute.lower(model, "budget", memory_budget=0.5)
    loss = lowered(tokens, targets)
    loss.backward()

or, without another module, in place:

    aten_recompute.enable(model, "budget", memory_budget=0.5)

Importing the package loads the shared library, which registers the ``torch::jit`` backend
``aten_recompute``. From then on, ``torch._C._jit_to_backend`` and ``torch.jit.load`` find it.
"""

import torch

from . import passes
from ._bug_report import save_bug_report
from ._draw import draw
from ._enable import disable, enable, enabled
from ._errors import (
    BudgetUnreachableError,
    Error,
    InvalidOptionError,
    InvalidRuleError,
    NoSuchMethodError,
    NotEnabledError,
    NotLoweredError,
    PeakOperator,
    PlanMismatchError,
)
from ._estimate import (
    BudgetEstimate,
    Estimate,
    ModuleProfile,
    NodeProfile,
    PeakEstimate,
    Profile,
    TensorInfo,
    estimate,
    profile,
)
from ._held import held_bytes
from ._layers import inject_layer_tags, mark_layer
from ._library import cmake_prefix_path, library_path, load_library
from ._logs import set_logs
from ._lower import clone, load, lower, problems, release_memory, report, save_plan, unlower
from ._options import LowerOptions
from ._planning import ProblemPlan, plan_problem
from ._report import Report
from ._rules import register_flops, register_rule, register_shape
from ._tags import must_recompute, must_save, prefer_recompute, prefer_save

load_library()
__version__: str = torch.ops.aten_recompute.version()

__all__ = [
    "BudgetEstimate",
    "BudgetUnreachableError",
    "Error",
    "Estimate",
    "InvalidOptionError",
    "InvalidRuleError",
    "LowerOptions",
    "ModuleProfile",
    "NoSuchMethodError",
    "NodeProfile",
    "NotEnabledError",
    "NotLoweredError",
    "PeakEstimate",
    "PeakOperator",
    "PlanMismatchError",
    "ProblemPlan",
    "Profile",
    "Report",
    "TensorInfo",
    "__version__",
    "clone",
    "cmake_prefix_path",
    "disable",
    "draw",
    "enable",
    "enabled",
    "estimate",
    "held_bytes",
    "inject_layer_tags",
    "library_path",
    "load",
    "lower",
    "mark_layer",
    "must_recompute",
    "must_save",
    "passes",
    "plan_problem",
    "prefer_recompute",
    "prefer_save",
    "problems",
    "profile",
    "register_flops",
    "register_rule",
    "register_shape",
    "release_memory",
    "report",
    "save_bug_report",
    "save_plan",
    "set_logs",
    "unlower",
]
