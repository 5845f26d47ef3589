"""Defines by hand what a layer of a model is."""

import re
from typing import TypeVar

import torch

from ._errors import InvalidOptionError

Module = TypeVar("Module", bound=torch.nn.Module)

LAYER_PATTERN = "aten_recompute_layer_pattern"  # read by lower() and by the library


def mark_layer(x: torch.Tensor, layer: int) -> torch.Tensor:
    """Marks the beginning of a layer: whatever is computed from ``x`` belongs to ``layer`` or to a greater one.

    The values are left unchanged. Scripted code can call the function as ``torch.ops.aten_recompute.mark_layer``. If a
    method contains such marks, they alone define its layers.

    Args:
        x: a tensor of any shape.
        layer: the number of the layer, at least 0.

    Returns:
        A view of ``x`` with the same shape.
    """
    marked: torch.Tensor = torch.ops.aten_recompute.mark_layer(x, layer)
    return marked


def inject_layer_tags(model: Module, pattern: str) -> Module:
    r"""Defines which submodules are the layers, in place of having them found.

    Args:
        model: a module, before or after ``torch.jit.script``. A pattern that is given before survives scripting and
            saving. One that is given afterward is seen by ``lower``, and the lowered module keeps it.
        pattern: a regular expression (ECMAScript). A submodule is a layer if its whole path matches, for example
            ``r"encoder\.layers\.\d+"``. Layers are numbered in the order in which they first run.

    Returns:
        ``model`` itself.

    Raises:
        ValueError: the pattern matches the path of no submodule.
    """
    if not any(re.fullmatch(pattern, name) for name, _ in model.named_modules()):
        names = [name for name, _ in model.named_modules() if name]
        error = InvalidOptionError(
            f'layer pattern "{pattern}" matches no submodule; there are: {", ".join(names[:8])}'
            + (", ..." if len(names) > 8 else "")
        )
        error.option = "pattern"
        raise error
    if isinstance(model, torch.jit.ScriptModule):
        # Not an attribute of the script module: its class is shared with other modules.
        model.__dict__[LAYER_PATTERN] = pattern
    else:
        setattr(model, LAYER_PATTERN, pattern)
    return model
