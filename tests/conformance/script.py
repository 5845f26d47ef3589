"""Writes TorchScript for calls that cannot be traced."""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_numbers = itertools.count()


def scripted_call(name: str, arguments: Any, result: Any) -> torch.jit.ScriptModule:
    """Returns a module that calls ``torch.<name>`` as ``Call`` does: it copies inputs that require grad, and results.

    ``result`` is what eager returned. Raises RuntimeError if TorchScript does not accept the call.
    """
    names: list[str] = []

    def text(leaf: Any) -> str:
        if not isinstance(leaf, Tensor):
            return repr(leaf)
        names.append(f"t{len(names)}")
        return names[-1] + (".clone()" if leaf.requires_grad else "")

    leaves, structure = pytree.tree_flatten(arguments)
    args, kwargs = pytree.tree_unflatten([_Text(text(leaf)) for leaf in leaves], structure)
    call = ", ".join([repr(a) for a in args] + [f"{key}={value!r}" for key, value in kwargs.items()])
    results = "[r.clone() for r in results]" if isinstance(result, (list, tuple)) else "[results.clone()]"
    source = f"def forward(self, {', '.join(names)}):\n    results = torch.{name}({call})\n    return {results}\n"
    # TorchScript identifies types by their names, so each module needs another name.
    module = type(f"Scripted{next(_numbers)}", (torch.jit.ScriptModule,), {})()
    module.define(source)
    return module


class _Text(str):
    """A string that is printed without quotes, so that lists of such strings are printed as source."""

    def __repr__(self) -> str:
        return str(self)
