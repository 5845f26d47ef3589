"""Hooks on tensors, parameters and modules see what they see in eager."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.eager_comparison import Case, check, every

HIDDEN = "TorchScript differentiates a subgraph as a whole, without the hooks of the values in it"


class Three(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.third = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.third(torch.tanh(self.second(torch.relu(self.first(x)))))


class ThreeWithHidden(Three):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.first(x))
        return self.third(torch.tanh(self.second(h))), h


class TwoResults(nn.Module):
    """Has two results with a layer each, of which the loss may need only one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(self.first(x)), torch.tanh(self.second(x))


def one_result(module: Any) -> Any:
    """Hooks of parameters that get no gradient are not called."""
    seen: dict[str, list[Any]] = {name: [] for name, _ in module.named_parameters()}
    handles = []
    for name, parameter in module.named_parameters():
        handles.append(parameter.register_hook(lambda grad, name=name: seen[name].append(grad)))
        handles.append(parameter.register_post_accumulate_grad_hook(lambda p, name=name: seen[name].append(p.grad)))
    for which in (0, 1):
        module(torch.randn(3, 6))[which].sum().backward()
    for handle in handles:
        handle.remove()
    return seen


def writes_another(module: Any) -> Any:
    """The hook of the last layer changes a weight that the backward still has to read, which raises."""
    target = module.second.weight

    def hook(_: Tensor) -> None:
        with torch.no_grad():
            target.mul_(2)

    module.third.weight.register_post_accumulate_grad_hook(hook)
    x = torch.randn(3, 6, requires_grad=True)
    module(x).square().sum().backward()


def writes_one_that_is_done(module: Any) -> Any:
    """The hook of the first layer changes the weight of the last layer, which is not read any more."""
    target = module.third.weight

    def hook(_: Tensor) -> None:
        with torch.no_grad():
            target.mul_(2)

    handle = module.first.weight.register_post_accumulate_grad_hook(hook)
    x = torch.randn(3, 6)
    module(x).square().sum().backward()
    handle.remove()


def gradient_hooks(module: Any) -> Any:
    """Hooks see each gradient once, may replace it, and are not called after their removal."""
    seen: list[str] = []

    def multiply(factor: float, name: str, grad: Tensor) -> Tensor:
        seen.append(name)
        return grad * factor

    handles = []
    for name, parameter in module.named_parameters():
        handles.append(parameter.register_hook(partial(multiply, 2, name)))
    x = torch.randn(3, 6, requires_grad=True)
    handles.append(x.register_hook(lambda grad: grad.clamp(-0.1, 0.1)))
    y = module(x)
    handles.append(y.register_hook(partial(multiply, 3, "result")))
    y.square().sum().backward()
    for handle in handles:
        handle.remove()
    return sorted(seen), x.grad


def hooks_on_hidden(module: Any) -> Any:
    x = torch.randn(3, 6, requires_grad=True)
    y, h = module(x)
    h.retain_grad()
    h.register_hook(lambda grad: grad * 0.5)
    (y.sum() + h.square().sum()).backward()
    return h.grad, x.grad


def raising_hook(module: Any) -> Any:
    def hook(grad: Tensor) -> None:
        raise ValueError("the hook raises")

    handle = module.second.weight.register_hook(hook)
    try:
        module(torch.randn(3, 6)).sum().backward()
    finally:
        handle.remove()


def after_a_raising_hook(module: Any) -> Any:
    with pytest.raises(ValueError, match="the hook raises"):
        raising_hook(module)
    module.zero_grad()
    module(torch.randn(3, 6)).sum().backward()


class Holder(nn.Module):
    """A Python module around a ScriptModule, which accepts no backward hooks itself."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def module_hooks(module: Any) -> Any:
    """Full backward hooks around the module see the incoming and the outgoing gradients."""
    seen: list[Any] = []
    holder: Any = Holder(module)
    holder.register_full_backward_pre_hook(lambda m, grads: tuple(g * 2 for g in grads))
    holder.register_full_backward_hook(lambda m, entering, leaving: seen.append([entering, leaving]))
    holder.register_forward_hook(lambda m, arguments, result: result + 1)
    holder.register_forward_pre_hook(lambda m, arguments: (arguments[0] * 2,))
    x = torch.randn(3, 6, requires_grad=True)
    y = holder(x)
    y.square().sum().backward()
    return y, x.grad, seen


def multi_grad_hook(module: Any) -> Any:
    seen: list[int] = []
    parameters = list(module.parameters())
    handle = torch.autograd.graph.register_multi_grad_hook(parameters, lambda grads: seen.append(len(grads)))
    module(torch.randn(3, 6)).sum().backward()
    handle.remove()
    return seen


def grad_fn_hooks(module: Any) -> Any:
    seen: list[Any] = []
    x = torch.randn(3, 6, requires_grad=True)
    y = module(x)
    y.grad_fn.register_prehook(lambda grads: seen.append([g.clone() for g in grads if g is not None]))
    y.sum().backward()
    return seen, x.grad


def another_backward_in_a_hook(module: Any) -> Any:
    """The hook runs another backward through the same module."""
    x = torch.randn(3, 6)
    found: list[Tensor] = []

    def hook(grad: Tensor) -> None:
        z = torch.ones(2, 6, requires_grad=True)
        with torch.enable_grad():
            found.append(torch.autograd.grad(module(z).sum(), z)[0])

    handle = module.second.bias.register_hook(hook)
    module(x).square().sum().backward()
    handle.remove()
    return found


CASES = [
    Case("writes_another", Three, writes_another, error="modified by an inplace operation"),
    Case("writes_one_that_is_done", Three, writes_one_that_is_done),
    Case("gradient_hooks", Three, gradient_hooks),
    Case(
        "hooks_on_hidden",
        ThreeWithHidden,
        hooks_on_hidden,
        stock=HIDDEN,
        asks_more=True,
        fails={
            "every strategy": "a hook on a result that the method reads sees only the caller's part of its gradient"
        },
    ),
    Case("raising_hook", Three, raising_hook, error="the hook raises"),
    Case("after_a_raising_hook", Three, after_a_raising_hook),
    Case("module_hooks", Three, module_hooks),
    Case("one_result", TwoResults, one_result),
    Case("multi_grad_hook", Three, multi_grad_hook),
    Case("grad_fn_hooks", Three, grad_fn_hooks),
    Case("another_backward_in_a_hook", Three, another_backward_in_a_hook),
]


@every(CASES)
def test_hooks_see_what_they_see_in_eager(case: Case, strategy: str) -> None:
    check(case, strategy)
