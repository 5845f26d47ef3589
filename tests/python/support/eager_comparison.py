"""Runs one case in eager, in stock TorchScript and lowered, and compares the results.

A ``Case`` makes a module and uses it. ``check`` does so three times, because TorchScript optimizes a program after two
runs, and compares everything that a caller can see afterward: the result of the case, parameters, their gradients,
buffers and the state of the random generator.

Results have to be equal to the bit. If those of stock TorchScript differ from eager's in their last bits, ours have to
be close only. An error has to have the type that it has in eager or in stock TorchScript, and a message that matches
the pattern of the case.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute

# The options of each strategy. A module with few activations cannot keep the smaller budget; it gets the greater one.
STRATEGIES: dict[str, list[dict[str, Any]]] = {
    "none": [{"strategy": "none"}],
    "all": [{"strategy": "all"}],
    "segments": [{"strategy": "segments"}],
    "min_cut": [{"strategy": "min_cut"}],
    "budget": [{"strategy": "budget", "memory_budget": share} for share in (0.9, 1.0)],
}
CALLS = 3
UNREACHABLE = "the smallest that can be reached"

# The relative and absolute tolerance if stock TorchScript differs from eager in the last bits.
CLOSE = {torch.float64: (1e-11, 1e-12), torch.float32: (1e-5, 1e-6), torch.bfloat16: (1e-2, 1e-2)}

Leaf = Tensor | bool | int | float | str | None


@dataclass(frozen=True, eq=False)
class Case:
    """A module and its use.

    ``stock`` is the reason why stock TorchScript differs from eager. Ours may then equal either of them, or has to
    equal eager if the case ``asks_more``. ``close`` is the reason why the last bits of ours may differ from both.
    ``fails`` has strategies (or "every strategy") that do not agree yet, with the reasons. Cases share classes, whose
    code TorchScript optimizes for the first calls: where these decide what stock TorchScript returns, ``before`` makes
    them, whatever other cases have run.
    """

    name: str
    make: Callable[[], nn.Module]
    use: Callable[[nn.Module], Any]
    error: str = ""  # a pattern for the message of the error that the case raises
    stock: str = ""
    asks_more: bool = False
    close: str = ""
    script: Callable[[nn.Module], torch.jit.ScriptModule] = torch.jit.script
    fails: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[nn.Module], Any] | None = None


class Disagreement(AssertionError):
    """A lowered module differs from eager."""


def every(cases: Sequence[Case]) -> Any:
    """Parametrises a test by cases and strategies. Combinations that are known to fail have to fail."""
    assert len({case.name for case in cases}) == len(cases)
    parameters = []
    for case in cases:
        assert set(case.fails) <= {*STRATEGIES, "every strategy"}
        for strategy in STRATEGIES:
            reason = case.fails.get(strategy, case.fails.get("every strategy"))
            marks = [pytest.mark.xfail(strict=True, raises=Disagreement, reason=reason)] if reason else []
            parameters.append(pytest.param(case, strategy, marks=marks, id=f"{case.name}-{strategy}"))
    return pytest.mark.parametrize(("case", "strategy"), parameters)


@dataclass
class Outcome:
    """What a caller can see after each call, and the error that ended the calls, if any."""

    calls: list[list[Leaf]] = field(default_factory=list)
    error: Exception | None = None


def leaves(value: Any) -> list[Leaf]:
    """Returns the tensors, numbers and strings of a nested value, in order."""
    if isinstance(value, Tensor):
        return [value.detach().clone()]
    if isinstance(value, Mapping):
        return [leaf for key in sorted(value) for leaf in [str(key), *leaves(value[key])]]
    if isinstance(value, (list, tuple)):
        return [len(value)] + [leaf for element in value for leaf in leaves(element)]
    assert value is None or isinstance(value, (bool, int, float, str)), f"{type(value).__name__} cannot be compared"
    return [value]


def visible(module: nn.Module) -> list[Leaf]:
    """Returns the state of the module and of the random generator."""
    state = {name: [parameter, parameter.grad] for name, parameter in module.named_parameters()}
    return leaves([state, dict(module.named_buffers()), torch.get_rng_state()])


def run(case: Case, way: Callable[[nn.Module], nn.Module]) -> Outcome:
    """Runs all calls of the case on a new module, after passing it to ``way``."""
    outcome = Outcome()
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = way(case.make())
            for call in range(CALLS):
                module.zero_grad(set_to_none=True)
                torch.manual_seed(100 + call)
                outcome.calls.append(leaves(case.use(module)) + visible(module))
        except Exception as error:  # the others have to raise whatever eager raises
            outcome.error = error
    return outcome


def _leaf_difference(actual: Leaf, expected: Leaf, exact: bool) -> str:
    if not isinstance(actual, Tensor) or not isinstance(expected, Tensor):
        same = type(actual) is type(expected) and (actual == expected or (actual != actual and expected != expected))
        return "" if same else f"{_word(actual)} in place of {_word(expected)}"
    if (actual.dtype, actual.shape, actual.layout) != (expected.dtype, expected.shape, expected.layout):
        return f"{_word(actual)} in place of {_word(expected)}"
    if torch.equal(actual.nan_to_num(7.0), expected.nan_to_num(7.0)):
        return ""
    relative, absolute = CLOSE.get(actual.dtype, (0.0, 0.0))
    if not exact and torch.allclose(actual, expected, relative, absolute, equal_nan=True):
        return ""
    return f"{_word(actual)} differs by up to {(actual.double() - expected.double()).abs().max().item():.3g}"


def _word(leaf: Leaf) -> str:
    return f"{str(leaf.dtype)[6:]}{list(leaf.shape)}" if isinstance(leaf, Tensor) else repr(leaf)


def difference(actual: Outcome, expected: Outcome, exact: bool = True) -> str:
    """Describes the first difference; empty if there is none. Messages are compared by ``_error_difference``."""
    if len(actual.calls) != len(expected.calls) or (actual.error is None) != (expected.error is None):
        return f"call {len(actual.calls)}: {actual.error!r} in place of {expected.error!r}"
    for call, (a, b) in enumerate(zip(actual.calls, expected.calls, strict=True)):
        if len(a) != len(b):
            return f"call {call} gives {len(a)} values in place of {len(b)}"
        for index, (left, right) in enumerate(zip(a, b, strict=True)):
            what = _leaf_difference(left, right, exact)
            if what:
                return f"call {call}, value {index}: {what}"
    return ""


def _error_difference(actual: Exception, pattern: str, known: Sequence[Exception | None]) -> str:
    if not pattern or not re.search(pattern, str(actual)):
        return f"the error does not match {pattern!r}: {actual!r}"
    types = {type(error) for error in known if error is not None}
    return "" if type(actual) in types else f"{type(actual).__name__} in place of {[each.__name__ for each in types]}"


@lru_cache(maxsize=8)
def _references(case: Case) -> tuple[Outcome, Outcome, bool]:
    """Returns the outcomes of eager and stock TorchScript, and whether they are equal to the bit."""
    if case.before is not None:
        # The class gets a new type, whose code has not run.
        torch.jit._recursive.concrete_type_store = torch.jit._recursive.ConcreteTypeStore()
        scripted = case.script(case.make())
        for _ in range(CALLS):
            case.before(scripted)
    eager, stock = run(case, lambda module: module), run(case, case.script)
    if eager.error is not None:
        assert case.error, f"the case itself fails: {eager.error!r}"
        assert re.search(case.error, str(eager.error)), f"the case itself fails: {eager.error!r}"
    exact = not difference(stock, eager)
    agrees = exact or not difference(stock, eager, exact=False)
    if stock.error is not None and agrees:
        agrees = bool(re.search(case.error, str(stock.error)))
    if case.stock:
        assert not agrees, "the case states that stock TorchScript differs from eager, but it does not"
    else:
        assert agrees, f"stock TorchScript differs from eager: {difference(stock, eager, exact=False) or stock.error}"
    return eager, stock, exact


def _lowered(case: Case, options: dict[str, Any], module: nn.Module) -> torch.jit.ScriptModule:
    return aten_recompute.lower(case.script(module), options)


def check(case: Case, strategy: str) -> None:
    """Raises Disagreement if ours differs from eager. Skips the test if no plan keeps the budget."""
    eager, stock, exact = _references(case)
    for options in STRATEGIES[strategy]:
        actual = run(case, partial(_lowered, case, options))
        if actual.error is None or UNREACHABLE not in str(actual.error):
            break
    else:
        pytest.skip(f"no plan fits: {actual.error}")
    if case.stock and not case.asks_more and not difference(actual, stock):
        return
    what = difference(actual, eager, exact=(exact or bool(case.stock)) and not case.close)
    if not what and actual.error is not None:
        what = _error_difference(actual.error, case.error, (eager.error, stock.error))
    if what:
        raise Disagreement(f"{case.name}, {options}: {what}")
