"""Pictures of what a lowered module runs."""

import os
from typing import Literal

import torch

from ._errors import Error, first_line, typed_error
from ._targets import Target, handle_of, script_target


def draw(
    lowered: Target,
    path: str | os.PathLike[str],
    what: Literal["joint", "forward", "backward", "timeline"] = "joint",
    *,
    layer: str | None = None,
    method: str | None = None,
) -> None:
    """Draws what the last training step compiled, and writes the picture to a file.

    Boxes are operators, by color: what is kept for the backward, what is dropped and computed again, and what the
    backward computes again. Edges carry the bytes of what flows along them, if the module has a profile: the strategies
    ``segments``, ``min_cut`` and ``budget`` make one, and so does ``profile=True``. Modules are clusters. In a graph of
    more than 60 operators each layer is a single box, with stripes for the shares of its memory.

    Args:
        lowered: a lowered or enabled module, or an enabled function, after at least one training step.
        path: the path of the file. Its ending decides the format: ``.svg`` and ``.png`` need graphviz (its program
            ``dot``), ``.dot`` is the text that graphviz reads. The file is complete or not written at all.
        what: ``"joint"`` shows forward and backward beside each other, ``"forward"`` and ``"backward"`` one of them,
            and ``"timeline"`` the predicted memory over the operators of a step, which needs a profile.
        layer: the path of a module, such as ``"encoder.layers.3"``; what is inside of it is shown, with its neighbors.
        method: the method to draw, if several have run.

    Raises:
        ValueError: ``lowered`` is neither lowered nor enabled, or has not run a training step; ``what``, ``layer``,
            ``method`` or the ending of ``path`` is none of those that there are; or a timeline is asked for without a
            profile.
        RuntimeError: graphviz is not installed, or fails.
        OSError: the file cannot be written.
        TypeError: ``lowered`` is not scripted or traced.
    """
    handle = handle_of(script_target(lowered, "draw"))
    arguments = (os.fspath(path), what, layer or "", method or "")
    try:
        torch.ops.aten_recompute.draw(handle, *arguments)
        return
    except (RuntimeError, ValueError) as error:
        message = first_line(error)
        typed = typed_error(message)
        raised = ValueError(message) if type(typed) is Error else typed or type(error)(message)
        if not message.startswith("draw: "):
            raise
    if message.startswith("draw: cannot write") and "graphviz" not in message:
        raise OSError(message)
    raise raised
