"""Turns what a user gives, a module or a function of TorchScript, into what the library's operators accept."""

from typing import Any, Union

import torch

Target = Union[torch.jit.ScriptModule, "torch.jit.ScriptFunction[Any, Any]"]  # generic in type stubs only


def script_module(module: Any, function: str) -> torch.jit.ScriptModule:
    """Returns ``module`` if it is one of TorchScript.

    Args:
        module: what the user gave.
        function: the name of the function that was called, for the message.

    Raises:
        TypeError: it is something else; the message says what would be right.
    """
    if isinstance(module, torch.jit.ScriptModule):
        return module
    raise TypeError(_what_would_be_right(module, function, "a scripted or traced module", "a torch.jit.ScriptModule"))


def script_target(target: Any, function: str) -> Target:
    """Returns ``target`` if it is a module or a function of TorchScript.

    Args:
        target: what the user gave.
        function: the name of the function that was called, for the message.

    Raises:
        TypeError: it is something else; the message says what would be right.
    """
    if isinstance(target, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return target
    raise TypeError(
        _what_would_be_right(
            target,
            function,
            "a scripted or traced module or function",
            "a torch.jit.ScriptModule or torch.jit.ScriptFunction",
        )
    )


def handle_of(target: Target) -> Any:
    """Returns what the library's operators accept in place of the module or function."""
    if isinstance(target, torch.jit.ScriptModule):
        return target._c
    # An operator takes no functions. But the type of a function contains it, and a module may have attributes of any
    # type. The module names the compilation unit of Python's functions, in which its callers are.
    # The unit never forgets a class, so a function keeps its module.
    function: Any = target
    if not hasattr(function, "_aten_recompute_handle"):
        function._aten_recompute_handle = _holding(function, torch.jit._state._python_cu)
    return function._aten_recompute_handle


def handle_of_graph(graph: Any) -> Any:
    """Returns what the library's operators accept in place of a ``torch._C.Graph``; they change that same graph."""
    unit: Any = torch._C.CompilationUnit()
    return _holding(unit.create_function("__torch__.aten_recompute.graph", graph, True), unit)


def _holding(function: Any, unit: Any) -> Any:
    make_module: Any = torch._C.ScriptModule
    handle = make_module("__torch__.aten_recompute.Function", unit, True)
    kind = torch._C.OptionalType(torch._C._jit_try_infer_type(function).type())
    handle._register_attribute("aten_recompute_function", kind, None)
    return handle


def _what_would_be_right(given: Any, function: str, kind: str, type_name: str) -> str:
    if isinstance(given, torch.nn.Module):
        return f"{function} takes {kind}: call torch.jit.script({type(given).__name__}(...)) first"
    if callable(given) and hasattr(given, "__name__"):
        return f"{function} takes {kind}: call torch.jit.script({given.__name__}) first"
    return f"{function} takes {type_name}, not {type(given).__name__}"
