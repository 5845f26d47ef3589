"""Runs one case in eager, in stock TorchScript and lowered: what comes out has to be the same.

A ``Case`` makes a module and says what is done with it. ``check`` does that three times (TorchScript optimises a program
once it has seen two runs) and compares everything that can be seen afterwards: what the case returns, parameters, their
gradients, buffers and the state of the random generator.

Bits have to be equal, unless stock TorchScript's differ from eager's as well: then numbers have to be close. An error has
to be of the same kind: of eager's type or of stock TorchScript's, and its text has to match what the case says.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute

# The options of each strategy. Under the smaller budget nothing fits that has few activations: then the greater one is taken.
STRATEGIES: dict[str, list[dict[str, Any]]] = {
    "none": [{"strategy": "none"}],
    "all": [{"strategy": "all"}],
    "segments": [{"strategy": "segments"}],
    "min_cut": [{"strategy": "min_cut"}],
    "budget": [{"strategy": "budget", "memory_budget": share} for share in (0.9, 1.0)],
}
CALLS = 3
UNREACHABLE = "the smallest that can be reached"

# Relative and absolute tolerance, where stock TorchScript's last bit is another one than eager's.
CLOSE = {torch.float64: (1e-11, 1e-12), torch.float32: (1e-5, 1e-6), torch.bfloat16: (1e-2, 1e-2)}

Leaf = Tensor | bool | int | float | str | None


@dataclass(frozen=True, eq=False)
class Case:
    """What is done with which module.

    ``stock`` is the reason for which stock TorchScript gives something else than eager; ours may then give either, or
    has to give eager's where the case ``asks_more``.
    ``close`` is the reason for which ours may have another last bit than either. ``fails`` names strategies (or "every
    strategy") that do not agree yet, each with the reason.
    """

    name: str
    make: Callable[[], nn.Module]
    use: Callable[[nn.Module], Any]
    error: str = ""  # a pattern that the error's text matches
    stock: str = ""
    asks_more: bool = False
    close: str = ""
    script: Callable[[nn.Module], torch.jit.ScriptModule] = torch.jit.script
    fails: Mapping[str, str] = field(default_factory=dict)


class Disagreement(AssertionError):
    """A lowered module gives something else than eager."""


def every(cases: Sequence[Case]) -> Any:
    """Parametrises a test by each case and each strategy; what is known to fail has to fail."""
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
    """What could be seen of each call, or the error that ended them."""

    calls: list[list[Leaf]] = field(default_factory=list)
    error: Exception | None = None


def leaves(value: Any) -> list[Leaf]:
    """What a nested value consists of, in order."""
    if isinstance(value, Tensor):
        return [value.detach().clone()]
    if isinstance(value, Mapping):
        return [leaf for key in sorted(value) for leaf in [str(key), *leaves(value[key])]]
    if isinstance(value, (list, tuple)):
        return [len(value)] + [leaf for element in value for leaf in leaves(element)]
    assert value is None or isinstance(value, (bool, int, float, str)), f"{type(value).__name__} cannot be compared"
    return [value]


def visible(module: nn.Module) -> list[Leaf]:
    """The module's state and the random generator's, as the caller can see them."""
    state = {name: [parameter, parameter.grad] for name, parameter in module.named_parameters()}
    return leaves([state, dict(module.named_buffers()), torch.get_rng_state()])


def run(case: Case, way: Callable[[nn.Module], nn.Module]) -> Outcome:
    """All calls of the case, of a new module that went through ``way``."""
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
        except Exception as error:  # whatever eager raises is what the others have to raise
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
    """In words what differs; empty where nothing does. What errors say is compared by ``_error_difference``."""
    if len(actual.calls) != len(expected.calls) or (actual.error is None) != (expected.error is None):
        return f"call {len(actual.calls)}: {actual.error!r} in place of {expected.error!r}"
    for call, (a, b) in enumerate(zip(actual.calls, expected.calls)):
        if len(a) != len(b):
            return f"call {call} gives {len(a)} values in place of {len(b)}"
        for index, (left, right) in enumerate(zip(a, b)):
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
def _references(case: Case) -> "tuple[Outcome, Outcome, bool]":
    """Eager, stock TorchScript, and whether the two agree in every bit."""
    eager, stock = run(case, lambda module: module), run(case, case.script)
    if eager.error is not None:
        assert case.error and re.search(case.error, str(eager.error)), f"the case itself fails: {eager.error!r}"
    exact = not difference(stock, eager)
    agrees = exact or not difference(stock, eager, exact=False)
    if stock.error is not None and agrees:
        agrees = bool(re.search(case.error, str(stock.error)))
    if case.stock:
        assert not agrees, "stock TorchScript is said to differ from eager, and does not"
    else:
        assert agrees, f"stock TorchScript differs from eager: {difference(stock, eager, exact=False) or stock.error}"
    return eager, stock, exact


def check(case: Case, strategy: str) -> None:
    """Raises Disagreement with what differs from eager; skips where no plan fits into the budget."""
    eager, stock, exact = _references(case)
    for options in STRATEGIES[strategy]:
        actual = run(case, lambda module: aten_recompute.lower(case.script(module), options))
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
