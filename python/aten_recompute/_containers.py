"""Makes lowered ModuleLists, Sequentials and ModuleDicts usable as containers in Python.

On a scripted module, ``blocks[0]`` and ``for block in blocks`` work because ``torch.jit.script`` copies the methods of
the eager container. A lowered module comes from C++ and has no eager module to copy from, so the methods are made here
from its children.
"""

import operator
from typing import Any

import torch
from torch import nn


def act_as_containers(module: torch.jit.ScriptModule) -> None:
    """Makes ``len``, ``in``, iteration and indexing work on ``module`` and the containers inside of it."""
    for each in module.modules():
        compiled: Any = each._c
        if not compiled._has_method("__len__"):  # torch.jit.script gives one to each container
            continue
        each.__dict__["__len__"] = compiled._get_method("__len__")
        names = [name for name, _ in each._modules.items()]
        if compiled._has_method("__contains__"):
            each.__dict__.update(_dict_methods(each._modules))
        elif names == [str(index) for index in range(len(names))]:
            slices_to = nn.Sequential if compiled._has_method("forward") else nn.ModuleList
            each.__dict__.update(_list_methods(each._modules, slices_to))


# The functions hold a module's children and not the module: a reference cycle would keep its memory alive until the
# garbage collector runs.


def _dict_methods(children: Any) -> dict[str, Any]:
    return {
        "__contains__": lambda name: name in children,
        "__getitem__": lambda name: children[name],
        "__iter__": lambda: iter([name for name, _ in children.items()]),
        "items": lambda: children.items(),
        "keys": lambda: [name for name, _ in children.items()],
        "values": lambda: [child for _, child in children.items()],
    }


def _list_methods(children: Any, slices_to: type[nn.Module]) -> dict[str, Any]:
    def all_children() -> list[torch.jit.ScriptModule]:
        return [child for _, child in children.items()]

    def getitem(index: int | slice) -> nn.Module:
        if isinstance(index, slice):
            some = all_children()[index]
            return nn.Sequential(*some) if slices_to is nn.Sequential else nn.ModuleList(some)
        return all_children()[operator.index(index)]

    return {"__getitem__": getitem, "__iter__": lambda: iter(all_children())}
