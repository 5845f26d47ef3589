"""Saying by hand what a layer is."""

import re
from typing import TypeVar

import torch

Module = TypeVar("Module", bound=torch.nn.Module)

LAYER_PATTERN = "aten_recompute_layer_pattern"  # read by lower() and by the library


def mark_layer(x: torch.Tensor, layer: int) -> torch.Tensor:
    """Says that what is computed from ``x`` on belongs to ``layer`` (or a greater one).

    The identity, callable from scripted code as ``torch.ops.aten_recompute.mark_layer``. Where a
    method has such marks, they alone say what its layers are.

    Args:
        x: any tensor.
        layer: number of the layer, >= 0.

    Returns:
        A view of ``x``, same shape.
    """
    return torch.ops.aten_recompute.mark_layer(x, layer)


def inject_layer_tags(model: Module, pattern: str) -> Module:
    """Says which submodules are the layers, instead of having them found.

    Args:
        model: a module, before or after ``torch.jit.script``. Said before, it survives scripting and
            saving; said after, ``lower`` sees it, and the lowered module keeps it.
        pattern: a regular expression (ECMAScript); a submodule whose whole path matches is a layer:
            ``r"encoder\\.layers\\.\\d+"``. Layers are numbered in the order in which they first run.

    Returns:
        ``model``.

    Raises:
        ValueError: no submodule's path matches.
    """
    if not any(re.fullmatch(pattern, name) for name, _ in model.named_modules()):
        names = [name for name, _ in model.named_modules() if name]
        raise ValueError(
            f'layer pattern "{pattern}" matches no submodule; there are: {", ".join(names[:8])}'
            + (", ..." if len(names) > 8 else "")
        )
    if isinstance(model, torch.jit.ScriptModule):
        # Not an attribute of the script module: its class is shared with other modules.
        model.__dict__[LAYER_PATTERN] = pattern
    else:
        setattr(model, LAYER_PATTERN, pattern)
    return model
