"""lower, unlower, load, report."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ._containers import act_as_containers
from ._layers import LAYER_PATTERN

Strategy = str | Mapping[str, Any] | None


def _spec(strategy: Strategy, options: dict[str, Any]) -> str:
    """The JSON that the library reads."""
    if isinstance(strategy, Mapping):
        return json.dumps({**strategy, **options})
    if isinstance(strategy, str) and strategy.lstrip().startswith("{"):
        if options:
            raise ValueError(
                "options belong inside the JSON when the strategy is given as JSON, not beside it: "
                + ", ".join(options)
            )
        return strategy
    if isinstance(strategy, str):
        options = {"strategy": strategy, **options}
    elif strategy is not None:
        raise TypeError(f"strategy is a name, a dict or JSON text, not {type(strategy).__name__}")
    return json.dumps(options) if options else ""


def _script_module(module: Any, function: str) -> torch.jit.ScriptModule:
    if isinstance(module, torch.jit.ScriptModule):
        return module
    if isinstance(module, torch.nn.Module):
        raise TypeError(
            f"{function} takes a scripted or traced module: call torch.jit.script({type(module).__name__}(...)) first"
        )
    raise TypeError(f"{function} takes a torch.jit.ScriptModule, not {type(module).__name__}")


def _wrap(module: Any) -> torch.jit.ScriptModule:
    wrapped = torch.jit._recursive.wrap_cpp_module(module)
    act_as_containers(wrapped)
    return wrapped


def lower(
    module: torch.jit.ScriptModule,
    strategy: Strategy = None,
    *,
    methods: str | Sequence[str] = ("forward",),
    **options: Any,
) -> torch.jit.ScriptModule:
    """Lowers a scripted or traced module: it trains as before, in less memory.

    Args:
        module: what ``torch.jit.script`` or ``torch.jit.trace`` returned. It is not changed. What is lowered
            already, the module or modules inside of it, is planned anew with the rest.
        strategy: what is recomputed in the backward: a name (``"none"``, ``"all"``, ``"names"``,
            ``"layers"``, ``"ops"``, ``"segments"``, ``"min_cut"``), or the whole spec as a dict or JSON
            text. Without one the environment variable ``RECOMPUTE`` decides; with neither, nothing is
            recomputed.
        methods: the methods to lower, or the name of one. The others stay, unplanned.
        **options: the strategy's own options, e.g. ``start=0, stride=2`` for ``"layers"``, and
            ``fullgraph=True``: more than one region in a method is then an error.

    Returns:
        A module with the same parameters, buffers and submodules under the same names. They are the
        very tensors of ``module``: an optimizer that was made before goes on working. ``save`` it, and
        ``torch.jit.load`` or ``torch::jit::load`` trains it wherever the library is loaded.

    Raises:
        ValueError: an invalid option; the message names it and says what is accepted.
        TypeError: ``module`` is not scripted or traced.
    """
    module = _script_module(module, "lower")
    spec = _spec(strategy, options)
    try:
        lowered = torch.ops.aten_recompute.lower(
            module._c,
            spec,
            [methods] if isinstance(methods, str) else list(methods),
            module.__dict__.get(LAYER_PATTERN, ""),
        )
    except RuntimeError as error:
        if "invalid spec" in str(error) or "has no method" in str(error):
            raise ValueError(str(error).splitlines()[0]) from None
        raise
    return _wrap(lowered)


def unlower(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """The module as it was before it was lowered, with the tensors and attributes that it has now.

    Lowered modules anywhere inside of ``module`` are taken apart, too. ``module`` is not changed; one in which
    nothing is lowered is returned itself. ``torch.jit.freeze`` calls this by itself.
    """
    module = _script_module(module, "unlower")
    if not torch.ops.aten_recompute.holds_lowered(module._c):
        return module
    return _wrap(torch.ops.aten_recompute.unlower(module._c))


def load(path: Any, map_location: Any | None = None) -> torch.jit.ScriptModule:
    """``torch.jit.load``, for modules that ``lower(...).save(path)`` wrote."""
    loaded = torch.jit.load(path, map_location=map_location)
    act_as_containers(loaded)
    return loaded


def report(lowered: torch.jit.ScriptModule) -> dict[str, Any]:
    """What has been compiled so far.

    Returns:
        ``{"methods": [{"method", "options", "specialisations": [{"regions", "breaks", "plans"}]}]}``. A region
        has one variant for each set of inputs that required grad (and, with a budget, for sizes that
        needed a plan of their own and for each time that a call runs it): the number of its forward and
        backward operators and of its stages, the names of the values that are ``saved`` and
        ``recomputed``, what ``min_cut`` ``banned`` from being recomputed (each a ``value`` and a
        ``reason``), and the operators ``on_tape``, which have no gradient rule. ``gradients_by`` counts the
        operators that a gradient passes through, by name, under ``rule``, ``user_rule`` and ``tape``: where
        theirs comes from. ``plans`` has predictions for the whole method, where several regions share a
        budget. A break names the node, the reason and the source line. Regions are compiled by the first
        call that needs a gradient.

    Raises:
        ValueError: the module was not lowered.
    """
    return json.loads(_ask(torch.ops.aten_recompute.report, lowered, "report"))


def save_plan(lowered: torch.jit.ScriptModule, path: Any) -> None:
    """Writes the plans of what has been compiled so far to a JSON file.

    ``lower(module, plan=path)`` follows it again, on any machine: nothing is searched for. It names what
    is saved with its bytes, what is computed again and when, and the peak and time that were predicted.

    Raises:
        ValueError: the module was not lowered, or nothing was compiled with a profile yet: run a step
            first, with strategy ``budget``, ``min_cut`` or ``segments``, or with ``profile=True``.
    """
    text = _ask(torch.ops.aten_recompute.plan, lowered, "save_plan")
    if not json.loads(text)["regions"]:
        raise ValueError(
            "save_plan: nothing is planned yet: run a training step first, with strategy budget, min_cut or segments, "
            "or with profile=True"
        )
    with open(path, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def problems(lowered: torch.jit.ScriptModule) -> list[dict[str, Any]]:
    """The planning problems of the regions that were compiled with a profile: what planners see.

    Nodes, values and storages as lists, with bytes, seconds and floating-point operations; see
    ``passes/plan/problem.h``. Compiled regions only, and only where the strategy looks at costs
    (``segments``, ``min_cut``, ``budget``) or ``profile=True`` was given.

    Raises:
        ValueError: the module was not lowered.
    """
    return [json.loads(text) for text in _ask(torch.ops.aten_recompute.problems, lowered, "problems")]


def _ask(operator: Any, lowered: torch.jit.ScriptModule, what: str) -> Any:
    module = _script_module(lowered, what)
    try:
        return operator(module._c)
    except RuntimeError as error:
        if "not a lowered module" in str(error):
            raise ValueError(str(error).splitlines()[0]) from None
        raise
