"""Trains one drawn module as Python, scripted and lowered, and compares what every call leaves."""

import dataclasses
import itertools
import re
import sys
import types
import warnings
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

import aten_recompute
from support.sources import run_source

from .autocast import AROUND, has_blocks, without_blocks
from .modules import Call, Model

STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "none"},
    {"strategy": "all"},
    {"strategy": "budget", "memory_budget": 0.7, "cost_model": "flops", "unreachable": "leanest"},
]

_CHANGED = "modified by an inplace operation"
# In a block within a block of another type, eager finds casts of weights in the outer type in the cache, and may raise.
_TYPES = "must have the same dtype"
# Layers with parameters of another type than their input raise. They do not run if nothing reads their result, norms
# in training aside (docs/behavior.md).
_OTHER_TYPES = ("mixed dtype", "should be the same", _TYPES)
_BOUNDS = [-3.0, -0.5, -0.3, -0.1, 0.0, 0.1, 0.3, 0.7, 3.0, 6.0]
_names = (f"fuzz_model_{number}" for number in itertools.count())

State = list[Tensor | str | None]


def class_of(model: Model) -> type[nn.Module]:
    """Returns the class of the module, whose source TorchScript finds by ``linecache``."""
    name = next(_names)
    file = f"<{name}>"
    space = types.ModuleType(name)
    space.__file__ = file
    sys.modules[name] = space
    run_source(model.source, file, space.__dict__)
    made: type[nn.Module] = space.__dict__["Model"]
    return made


def _input(model: Model, call: Call, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (call.rows, 4, 3, 3) if model.image else (call.rows, 6)
    x = torch.randn(shape, generator=generator)
    if call.special == "bounds":
        chosen = torch.randint(0, len(_BOUNDS), shape, generator=generator)
        x = torch.where(torch.rand(shape, generator=generator) < 0.5, torch.tensor(_BOUNDS)[chosen], x)
    elif call.special:
        x.view(-1)[torch.randint(0, x.numel(), (1,), generator=generator)] = float(call.special)
    return x.to(getattr(torch, model.dtype))


def _edit(module: Any, statement: str) -> None:
    with torch.no_grad():
        exec(statement, {"m": module})


class _Around:
    """The block of autocast that the caller has open."""

    def __init__(self) -> None:
        self._name = ""
        self._block: AbstractContextManager[Any] = AROUND[""]()

    def change(self, name: str | None) -> None:
        """Closes the block and opens another, unless ``name`` is None."""
        if name is None:
            return
        self._block.__exit__(None, None, None)
        self._name, self._block = name, AROUND[name]()
        self._block.__enter__()

    def pause(self, backward_inside: bool) -> AbstractContextManager[Any]:
        """Returns what the backward runs in: mostly autocast is switched off for it."""
        return AROUND["" if backward_inside or not self._name else "disabled"]()


def train(module: Any, model: Model) -> list[State]:
    """Runs the calls; returns what each leaves: its output, gradients, buffers, attributes, random state, errors."""
    around = _Around()
    try:
        return _train(module, model, around)
    finally:
        around.change("")


def _train(module: Any, model: Model, around: _Around) -> list[State]:
    torch.manual_seed(1)
    states: list[State] = []
    loss: Any = None
    leaves: list[Tensor] = []
    for number, call in enumerate(model.calls):
        module.train(call.training)
        around.change(call.around)
        x = _input(model, call, number).requires_grad_()
        other = _input(model, call, number + 100)
        state: State = []
        try:
            output = module(x, call.key, call.index, call.flag, [other, other * 2] if call.as_list else other)
            leaves.append(x)
            state.append(output.detach().clone())
            weights = torch.linspace(-1, 1, output.numel()).view_as(output).to(output.dtype)
            loss = (output * weights).sum() if loss is None else loss + (output * weights).sum()
            if call.then == "backward":
                with around.pause(call.backward_inside):
                    loss.backward()
            elif call.then:
                _edit(module, call.then)
        except (RuntimeError, torch.jit.Error) as error:
            states.append([f"raises {_kind(error)}"])
            return states  # what comes after it depends on where it was raised
        if call.then == "backward":
            loss = None
            for parameter in module.parameters():
                gradient = parameter.grad
                state.append(None if gradient is None else gradient.clone())
                parameter.grad = None
            state += [leaf.grad for leaf in leaves]
            leaves = []
        state += [buffer.clone() for buffer in module.buffers()]
        state += [str(module.steps), torch.get_rng_state()]
        states.append(state)
    return states


def _kind(error: Exception) -> str:
    """Says which error it is: the last line, which TorchScript and ours end with as well."""
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__


def _error_of(state: State) -> str:
    return state[0] if isinstance(state[0], str) and state[0].startswith("raises") else ""


def difference(
    actual: list[State], expected: list[State], recomputes: bool = False, has_unread_layer: bool = False
) -> str:
    """Describes the first difference; returns an empty string if there is none.

    Eager may refuse a backward because something was changed in place that ours does not need for it. Where ours
    computes values again, it may refuse one that eager does not.
    """
    for number, (ours, eagers) in enumerate(zip(actual, expected, strict=False)):
        errors = [_error_of(ours), _error_of(eagers)]
        if (errors[1] and (errors[0] or _CHANGED in errors[1] or _TYPES in errors[1])) or (
            recomputes and _CHANGED in errors[0]
        ):
            return ""
        if has_unread_layer and not errors[0] and any(text in errors[1] for text in _OTHER_TYPES):
            return ""
        if errors[0] or errors[1]:
            return f"call {number} raises in {'ours' if errors[0] else 'eager'} only: {errors[0] or errors[1]}"
        for index, (a, b) in enumerate(zip(ours, eagers, strict=True)):
            if isinstance(a, Tensor) and isinstance(b, Tensor):
                if a.dtype != b.dtype or not torch.equal(a.isnan(), b.isnan()):
                    return f"call {number}, tensor {index}: NaN in other places, or another type"
                if not torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)):
                    return f"call {number}, tensor {index} differs by up to {(a.double() - b.double()).abs().max():.3g}"
            elif isinstance(a, Tensor) != isinstance(b, Tensor):
                given = a if isinstance(a, Tensor) else b
                if isinstance(given, Tensor) and bool(given.any()):
                    return f"call {number}, tensor {index} is missing in one of the two"
            elif a != b:
                return f"call {number}, value {index}: {a} in place of {b}"
    return ""


def is_unplanned(lowered: Any) -> bool:
    """Returns whether a method that is one region ran it under ordinary autograd, where no budget would be kept."""
    (method,) = (each for each in aten_recompute.report(lowered)["methods"] if each["method"] == "forward")
    return any(
        len(each["regions"]) == 1 and not each["breaks"] and not each["regions"][0]["variants"]
        for each in method["specialisations"]
    )


def _without_autocast(model: Model) -> Model:
    if not has_blocks(model.source) and not any(call.around != "" for call in model.calls):
        return model
    calls = [dataclasses.replace(call, around="") for call in model.calls]
    return dataclasses.replace(model, source=without_blocks(model.source), calls=calls)


def check(model: Model) -> str:
    """Compares the module, scripted and lowered, with eager.

    Returns:
        An empty string if it was compared, and otherwise the reason why it was not.

    Raises:
        AssertionError: there is a difference; the message has it and the module.
    """
    make = class_of(model)

    def made(make: type[nn.Module] = make) -> Any:
        torch.manual_seed(0)
        return make().to(getattr(torch, model.dtype))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = train(made(), model)
        # Stock TorchScript ignores or misreads blocks of autocast, so it is asked without them.
        plain = _without_autocast(model)
        make_plain = make if plain.source == model.source else class_of(plain)
        try:
            torch.jit.script(made())
            scripted = torch.jit.script(made(make_plain))
        except RuntimeError:
            return "TorchScript does not compile it"
        with torch.jit.optimized_execution(False):
            stock = train(scripted, plain)
        if difference(stock, expected if plain == model else train(made(make_plain), plain)):
            return "TorchScript differs from eager"
        # Autocast would keep the cast of a layer that nobody reads for layers behind its block (docs/behavior.md).
        named = {call.around for call in model.calls} | set(re.findall(r"\w+", model.source))
        if "unread = " in model.source and {"float16", "bfloat16"} <= named:
            return "an unread layer casts a parameter to another type"
        # A write to what may be the caller's tensor keeps the control flow (docs/behavior.md).
        keeps_flow = ".contiguous()\n" in model.source and ".mul_(" in model.source
        # No version counter tells of these. What is computed again reads new values, as under torch.utils.checkpoint.
        edits_data = any(".data" in call.then for call in model.calls)
        for options in STRATEGIES[:1] if edits_data else STRATEGIES:
            lowered = aten_recompute.lower(torch.jit.script(made()), options)
            actual = train(lowered, model)
            repeats = any(call.backward_inside for call in model.calls)
            what = difference(
                actual,
                expected,
                recomputes=repeats or options["strategy"] != "none",
                # Under autocast, layers raise where types are mixed, and any of them may be unread in some call.
                has_unread_layer="unread = " in model.source or plain != model,
            )
            # Under a budget, a variant whose plan is outdated is not in the report.
            planned = options["strategy"] != "none" or plain != model or keeps_flow or not is_unplanned(lowered)
            if not what and not _error_of(actual[-1]) and not planned:
                what = "a region is not planned"
            assert not what, f"{options}: {what}\n{model.dtype} {model.calls}\n{model.source}"
    return "raises in eager" if _error_of(expected[-1]) else ""
