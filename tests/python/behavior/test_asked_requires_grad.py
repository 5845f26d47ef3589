"""Methods may ask ``requires_grad`` of any tensor, and take another way by the answer."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.helpers import assert_same, lowered_copy
from support.sources import run_source

# Of `x`, which may require a gradient, and `k`, which does not. `self.w` does.
COMPUTED = [
    "k.to(x)",
    "k.double().to(x)",
    "k.type_as(x)",
    "k.double().type_as(x)",
    "k.expand_as(x)",
    "k.reshape_as(x)",
    "(k * 2).view_as(x)",
    "x.detach().view_as(x)",
    "x.expand_as(k)",
    "x.double().to(k)",
    "x[0]",
    "x.t()",
    "self.w.t()",
    "(x * k)[0]",
    "torch.split(x * k, 2, 1)[1]",
    "torch.unbind(torch.stack([x, k]))[1]",
    "torch.broadcast_tensors(x, k)[1]",
    "torch.broadcast_tensors(k, x)[0]",
    "torch.meshgrid([k[0], x[0]], indexing='ij')[0]",
    "torch.atleast_1d([k, x])[0]",
    "torch.atleast_2d([k, x])[1]",
    "torch.native_layer_norm(x, [4], None, None, 1e-5)[0]",
    "torch.native_layer_norm(x, [4], None, None, 1e-5)[1]",
    "torch.max(x, 1)[0]",
    "torch.max(x, 1)[1]",
    "torch.var_mean(x)[1]",
    "torch.tensor([float(k.sum())], requires_grad=True)",
    "torch.tensor([float(k.sum())])",
    "torch.gather(k, 1, k.long())",
    "torch.gather(x, 1, k.long())",
    "k.new_ones(x.shape)",
    "torch.where(x > 0, k, k * 2)",
    "torch.autograd.grad([(x * self.w).sum()], [self.w])[0]",
    "torch.ops.recompute_test_asked.detached(x)",
    "torch.ops.recompute_test_asked.two(x)[1]",
]
NO_GRAD = ["x[0]", "x * 2", "x.contiguous()", "(x * 1.5)[0]", "(x * 1.5).contiguous()", "k[0]", "self.w.t()"]


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """Operators of a program, which are composed of others that cut a history."""
    library = torch.library.Library("recompute_test_asked", "DEF")
    kind = "CompositeImplicitAutograd"
    library.define("detached(Tensor x) -> Tensor")
    library.impl("detached", lambda x: x.detach() * 2, kind)
    library.define("two(Tensor x) -> (Tensor, Tensor)")
    library.impl("two", lambda x: (x * 2, x.detach() + 1), kind)
    yield
    library._destroy()


def module_that_asks(lines: list[str], name: str) -> nn.Module:
    body = "\n        ".join(lines)
    source = f"""
class Asks(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(2, 4))

    def forward(self, x: Tensor, k: Tensor) -> Tensor:
        y = x * self.w
        {body}
        return y + 1.0 if asked else y
"""
    names = {"torch": torch, "nn": nn, "Tensor": Tensor, "__name__": __name__}
    run_source(source, f"<asked {name}>", names)
    return names["Asks"]()


def answers(module: nn.Module) -> list[Tensor]:
    found = []
    for requires, enabled in itertools.product([True, False, True], [True, False]):
        x = torch.zeros(2, 4, requires_grad=requires)
        with torch.set_grad_enabled(enabled):
            found.append(module(x, torch.ones(2, 4)))
    return found


@pytest.mark.parametrize("computed", COMPUTED)
def test_what_was_computed_is_asked(computed: str) -> None:
    if "autograd.grad" in computed:
        computed = f"({computed} if torch.is_grad_enabled() else x)"
    lines = [f"z = {computed}", "assert z is not None", "asked = z.requires_grad"]
    module = module_that_asks(lines, computed)
    assert_same(answers(lowered_copy(module, "none")), answers(module))


@pytest.mark.parametrize("computed", NO_GRAD)
@pytest.mark.parametrize("inside", [True, False])
def test_what_was_computed_under_no_grad_is_asked(computed: str, inside: bool) -> None:
    """A view of a tensor that requires a gradient does so, too, even under no_grad."""
    ask = "asked = z.requires_grad"
    lines = ["with torch.no_grad():", f"    z = {computed}", f"    {ask}" if inside else ask]
    module = module_that_asks(lines, computed)
    assert_same(answers(lowered_copy(module, "none")), answers(module))


class AsksOptional(nn.Module):
    def forward(self, x: Tensor, given: Tensor | None) -> Tensor:
        if given is not None and given.requires_grad:
            return x * 2.0
        return x * 3.0


class AsksUnwrapped(nn.Module):
    def forward(self, x: Tensor, given: Tensor | None) -> Tensor:
        t = torch.jit._unwrap_optional(given)
        if not t.requires_grad:
            t.requires_grad_()
        g = torch.autograd.grad([(t * t.sin()).sum()], [t], create_graph=True)[0]
        assert g is not None
        return g * x


class AsksElements(nn.Module):
    def forward(self, x: Tensor, given: list[Tensor | None]) -> Tensor:
        for each in given:
            if each is not None and each.requires_grad:
                x = x * 2.0
        return x


class SetsOptional(nn.Module):
    def forward(self, x: Tensor, given: Tensor | None) -> Tensor:
        if given is None:
            given = x * 2.0
        else:
            given.requires_grad_()
        return x * given


def as_given(tensor: Tensor | None) -> Any:
    return tensor


def as_element(tensor: Tensor | None) -> Any:
    return [tensor, None, tensor]


@pytest.mark.parametrize(
    ("module", "wrap", "may_be_none"),
    [
        (AsksOptional(), as_given, True),
        (AsksElements(), as_element, True),
        (AsksUnwrapped(), as_given, False),
        (SetsOptional(), as_given, True),
    ],
    ids=["asks", "asks elements", "asks unwrapped", "sets"],
)
def test_what_may_be_none_is_asked(module: nn.Module, wrap: Callable[[Any], Any], may_be_none: bool) -> None:
    seen: list[list[Tensor]] = []
    for each in (lowered_copy(module, "none"), module):
        seen.append([])
        for given in [torch.ones(3, requires_grad=True), torch.ones(3)] + [None] * may_be_none:
            result = each(torch.linspace(0, 1, 3), wrap(given))
            flags = [result.requires_grad, given is not None and given.requires_grad]
            seen[-1] += [result.detach(), torch.tensor(flags)]
    assert_same(*seen)
