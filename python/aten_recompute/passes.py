"""Single passes of the library, to test, dump and combine them.

    graph = torch.jit.script(net).inlined_graph
    (joint,) = passes.run("differentiate", region)
    passes.run("plan", joint, strategy="all")
    passes.run("splice", joint)
    forward, backward = passes.run("extract", joint)

``torch._C.FileCheck`` works on the results.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ._errors import checked
from ._options import Strategy, spec_of
from ._targets import handle_of_graph, script_module

_ours = torch.ops.aten_recompute


def names() -> dict[str, str]:
    """Returns the names of all passes with a line about each, in the order in which ``lower`` runs them."""
    lines = _ours.pass_names()
    return dict(zip(lines[::2], lines[1::2], strict=True))


def run(
    name: str,
    graph: "torch._C.Graph",
    *,
    module: torch.jit.ScriptModule | None = None,
    inputs: Sequence[Any] = (),
    requires_grad: Sequence[bool] = (),
    strategy: Strategy = None,
    **options: Any,
) -> list["torch._C.Graph"]:
    """Runs a pass on a graph.

    Args:
        name: one of ``names()``.
        graph: a graph of TorchScript: ``module.inlined_graph``, ``torch._C.parse_ir(text)``, or what another pass
            returned. Most passes change it in place.
        module: the module that the graph is a method of, for passes that read attributes. Its first input is the
            module then.
        inputs: the inputs of a call, for passes that look at them: of the method, or of the region for those that work
            on a region.
        requires_grad: for ``differentiate``, whether each input of the graph requires grad. By default all tensors do.
        strategy: for ``plan``, as for ``aten_recompute.lower``.
        **options: the options of the strategy, as for ``aten_recompute.lower``.

    Returns:
        The graphs that the pass leaves: ``graph`` itself where that was changed, otherwise other graphs.
        ``differentiate`` returns the joint graph of a region: forward and backward, with a node
        ``aten_recompute::backward_start`` between them. The passes from ``sum_parts`` to ``extract`` need such a
        graph. ``plan`` writes a schedule into it, ``splice`` carries that out, and ``extract`` returns forward and
        backward as graphs of their own.

    Raises:
        ValueError: there is no such pass; or it needs a module, inputs or a joint graph that it is not given.
        TypeError: ``graph`` is no graph of TorchScript.
    """
    if not isinstance(graph, torch._C.Graph):
        raise TypeError(f"passes.run takes a torch._C.Graph, such as module.inlined_graph, not {type(graph).__name__}")
    handle = handle_of_graph(graph)
    compiled = None if module is None else script_module(module, "passes.run")._c
    flags = [int(flag) for flag in requires_grad]
    left = checked(_ours.run_pass, name, handle, compiled, list(inputs), flags, spec_of(strategy, options))
    others = [left._get_method(method).graph for method in sorted(left._method_names())]
    return others or [graph]
