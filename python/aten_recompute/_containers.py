"""Lowered ModuleLists, Sequentials and ModuleDicts, as Python sees them.

On a scripted module ``blocks[0]`` and ``for block in blocks`` work, because ``torch.jit.script`` copies what the eager
container says. A module that comes from C++ has no eager one beside it, so its children are asked.
"""

import operator
from typing import Any

import torch
from torch import nn


def act_as_containers(module: torch.jit.ScriptModule) -> None:
    """Lets ``len``, ``in``, iteration and indexing work on the containers in ``module``, and on itself if it is one."""
    for each in module.modules():
        if not each._c._has_method("__len__"):  # torch.jit.script gives one to each container
            continue
        each.__dict__["__len__"] = each._c._get_method("__len__")
        names = [name for name, _ in each._modules.items()]
        if each._c._has_method("__contains__"):
            each.__dict__.update(_like_dict(each._modules))
        elif names == [str(index) for index in range(len(names))]:
            slices_to = nn.Sequential if each._c._has_method("forward") else nn.ModuleList
            each.__dict__.update(_like_list(each._modules, slices_to))


# These hold a module's children and not the module: a cycle would keep its memory until it is collected.


def _like_dict(children: Any) -> dict[str, Any]:
    return {
        "__contains__": lambda name: name in children,
        "__getitem__": lambda name: children[name],
        "__iter__": lambda: iter([name for name, _ in children.items()]),
        "items": lambda: children.items(),
        "keys": lambda: [name for name, _ in children.items()],
        "values": lambda: [child for _, child in children.items()],
    }


def _like_list(children: Any, slices_to: type[nn.Module]) -> dict[str, Any]:
    def all_children() -> list[torch.jit.ScriptModule]:
        return [child for _, child in children.items()]

    def getitem(index: int | slice) -> nn.Module:
        if isinstance(index, slice):
            some = all_children()[index]
            return nn.Sequential(*some) if slices_to is nn.Sequential else nn.ModuleList(some)
        return all_children()[operator.index(index)]

    return {"__getitem__": getitem, "__iter__": lambda: iter(all_children())}
