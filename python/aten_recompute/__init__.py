"""Train TorchScript modules in less memory.

    model   = torch.jit.script(GPT())
    lowered = aten_recompute.lower(model, strategy="segments")
    loss = lowered(tokens, targets)
    loss.backward()

Importing the package loads the library, which registers the ``torch::jit`` backend
``aten_recompute``: PyTorch's own ``torch._C._jit_to_backend`` and ``torch.jit.load`` find it from
then on.
"""

from ._library import library_path, load_library

load_library()

from ._layers import inject_layer_tags, mark_layer
from ._lower import load, lower, problems, report, save_plan, unlower
from ._planning import plan_problem
from ._rules import register_rule
from ._tags import must_recompute, must_save, prefer_recompute, prefer_save

__all__ = [
    "inject_layer_tags",
    "library_path",
    "load",
    "lower",
    "mark_layer",
    "must_recompute",
    "must_save",
    "plan_problem",
    "prefer_recompute",
    "prefer_save",
    "problems",
    "register_rule",
    "report",
    "save_plan",
    "unlower",
]
