"""Gives the methods of a lowered module signatures.

``torch.jit.script`` gives a method the signature of the eager one, which trainers look at to see which inputs a model
takes. A method that comes from C++ has none.
"""

import inspect
from typing import Any

import torch


def add_signatures(module: torch.jit.ScriptModule, like: torch.jit.ScriptModule | None = None) -> None:
    """Makes ``inspect.signature`` work on the methods of ``module`` and of the modules inside of it.

    Args:
        module: a module that comes from C++.
        like: a module with the same methods, whose signatures are taken where it has some. The others are made from
            the methods' schemas.
    """
    originals = {} if like is None else dict(like.named_modules())
    for name, each in module.named_modules():
        compiled: Any = each._c
        for method_name in compiled._method_names():
            if not method_name.startswith("__"):
                method = compiled._get_method(method_name)
                original = getattr(originals.get(name), method_name, None)
                signature = _signature_of(original) or _signature_from(method.schema)
                if signature is not None:
                    method.__signature__ = signature
                each.__dict__[method_name] = method


def _signature_of(function: Any) -> inspect.Signature | None:
    """Returns None where a method was given none: what ``inspect`` finds then is that of ``ScriptMethod.__call__``."""
    if not hasattr(function, "__wrapped__") and not hasattr(function, "__signature__"):
        return None
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def _signature_from(schema: Any) -> inspect.Signature | None:
    """Returns None where the arguments have no names in Python: traced methods may have two of one name."""
    kinds = {False: inspect.Parameter.POSITIONAL_OR_KEYWORD, True: inspect.Parameter.KEYWORD_ONLY}
    try:
        return inspect.Signature(
            [
                inspect.Parameter(
                    argument.name,
                    kinds[argument.kwarg_only],
                    default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
                )
                for argument in schema.arguments[1:]  # the first one is the module
            ]
        )
    except ValueError:
        return None
