"""Hooks of parameters that a loss may not need run as in eager."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from support.eager_comparison import Case, check, every


class Unread(nn.Module):
    """Reads a parameter for a result that is used, and again for one that may not be used."""

    def __init__(self, returned: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 3))
        self.returned = returned

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(self.weight * x) * 0.5
        z = self.weight * 0.5
        n = 0
        while n < 2:
            n += 1
            z = torch.relu(x) * 0.5 + z * 0.25
        return y, z if self.returned else y


def use_first_result(module: Any) -> list[Tensor]:
    calls = []
    module.weight.register_post_accumulate_grad_hook(lambda weight: calls.append(weight.grad.clone()))
    module(torch.linspace(-1, 1, 12).view(4, 3))[0].sum().backward()
    return calls


def ask_for_unused(module: Any) -> list[Any]:
    calls: list[Tensor] = []
    module.weight.register_hook(lambda gradient: calls.append(gradient.clone()))
    x = torch.linspace(-1, 1, 12).view(4, 3).requires_grad_()
    y, z = module(x)
    unused = torch.autograd.grad((x * 2.0).sum() + 0.0 * y.sum().detach(), [x], allow_unused=True)
    used = torch.autograd.grad(y.sum(), [x, module.weight], retain_graph=True, allow_unused=True)
    both = torch.autograd.grad(z.sum() + y.sum(), [module.weight, x], allow_unused=True)
    return [*unused, *used, *both, *calls]


class TwoParameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 3))
        self.other = nn.Parameter(torch.rand(4, 3))


class UnreadAlone(TwoParameters):
    """Reads a parameter only for a result that is not used."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * self.other * 0.5
        z = self.weight * 0.5
        with torch.no_grad():
            z = torch.relu(x) * 0.5 + z * 0.25
        return y, z


def ask_for_what_has_none(module: Any) -> list[Any]:
    calls: list[Tensor] = []
    for parameter in (module.weight, module.other):
        parameter.register_hook(lambda gradient: calls.append(gradient.clone()))
    y, z = module(torch.linspace(-1, 1, 12).view(4, 3))
    has_history = z.requires_grad
    found = torch.autograd.grad(y.sum(), [module.weight, module.other], allow_unused=True)
    del y, z  # while another graph leads to the parameter, its hooks are called with None
    module(torch.ones(4, 3))[0].sum().backward(inputs=[module.weight, module.other])
    return [*found, has_history, *calls]


class UnreadBehindAWrite(TwoParameters):
    """A region reads what a write outside of regions made of a parameter, for a result that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        copy = self.weight * 1.25
        copy[1:].copy_(self.weight[1:])
        noise = torch.rand(4, 3)
        noise += self.other
        y = noise.to(self.other.dtype) * 1.0
        z = copy * 0.5
        with torch.no_grad():
            z = torch.relu(x) * 0.5 + z * 0.25
        return y, z


def ask_a_result_itself(module: Any) -> list[Any]:
    calls: list[Tensor] = []
    module.weight.register_hook(lambda gradient: calls.append(gradient.clone()))
    y = module(torch.ones(4, 3))[0]
    return [*torch.autograd.grad([y], [module.weight, module.other], [torch.ones_like(y)], allow_unused=True), *calls]


class UnreadTwice(TwoParameters):
    """Reads the parameter of a result that is not used twice, so that its gradient has two summands."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(x * self.other)
        z = (self.weight + torch.tanh(self.weight * x).sum(0)) * 0.5
        return y, z


class ReadTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.weight * x + (self.weight * self.weight).sum(0), x


def use_twice(module: Any) -> list[Any]:
    module.weight.register_hook(lambda gradient: gradient * 2.0)
    y = module(torch.linspace(-1, 1, 12).view(4, 3))[0]
    (first,) = torch.autograd.grad(y.square().sum(), [module.weight], create_graph=True)
    return [first, *torch.autograd.grad(first.sum(), [module.weight])]


class UnreadByTwoRegions(TwoParameters):
    """Has two regions with a branch on data between them; only ``other`` is read for the first result."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.tanh(x * self.other)
        z = torch.relu(self.weight * x) * 0.5
        if y.sum().item() > 1e9:
            return y, z
        return torch.sin(y * self.other), torch.tanh(self.weight * x) + z


class LikeAParameter(TwoParameters):
    """Reads only the sizes of a parameter and returns it, so that its gradient is complete at once."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.rand_like(self.weight) * self.other
        return torch.tanh(noise * x) + torch.full_like(self.weight, 0.5) * self.other, self.weight


def update_at_once(module: Any) -> list[Any]:
    def update(parameter: Tensor) -> None:
        if parameter.grad is None:
            return  # in stock TorchScript
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=0.5)
        parameter.grad = None

    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    torch.autograd.backward(list(module(torch.ones(4, 3))), [torch.ones(4, 3), torch.ones(4, 3)])
    return [parameter.detach().clone() for parameter in module.parameters()]


class UnreadBehindAView(TwoParameters):
    """Reads a view of the parameter, or a region's result made of it, for a result that is not used."""

    def __init__(self, region_between: bool) -> None:
        super().__init__()
        self.region_between = region_between

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        view = self.weight.expand(self.weight.size(0), -1)
        if self.region_between:
            view = torch.tanh(view)
            if view.sum().item() > 1e9:
                view = view * 2.0
        used = torch.relu(x * self.other) * 1.5
        return used, view * 0.5


def hook_what_is_unread(module: Any) -> list[Any]:
    """Uses hooks of the parameters, and of a value that eager code makes of one of them and passes to the module."""
    calls: list[Any] = []
    module.weight.register_hook(lambda gradient: calls.append(gradient.clone()))
    module.weight.register_post_accumulate_grad_hook(lambda weight: calls.append(weight.grad.clone()))
    given = (module.other * 3.0).sin()[:, :]
    given.register_hook(lambda gradient: calls.append(gradient.clone()))
    module.other.register_post_accumulate_grad_hook(lambda other: calls.append(other.grad.clone()))
    first, second = module(given)
    first.sum().backward(retain_graph=True)
    calls.append("the other result")
    second.sum().backward()
    return calls


def while_another_graph_is_alive(module: Any) -> list[Any]:
    calls: list[Tensor] = []
    module.weight.register_hook(lambda gradient: calls.append(gradient.clone()))
    alive = (module.weight * 2).sum()
    module(torch.ones(4, 3))[0].sum().backward()
    asked = torch.autograd.grad(module(torch.ones(4, 3))[0].sum(), [module.weight, module.other], allow_unused=True)
    alive.backward()
    return [*asked, *calls, module.weight.grad]


def begin_at_the_parameter(module: Any) -> list[Any]:
    """Passes a gradient of the parameter itself to the backward, beside a result for which it is not read."""
    calls: list[Tensor] = []
    module.weight.register_hook(lambda gradient: calls.append(gradient.clone()))
    torch.autograd.backward([module(torch.ones(4, 3))[0].sum(), module.weight], [None, torch.ones(4, 3)])
    return [*calls, module.weight.grad]


def hook_the_node(module: Any) -> list[Any]:
    """Uses hooks before and after the node that accumulates the gradient."""
    calls: list[Any] = []
    node = module.weight.view_as(module.weight).grad_fn.next_functions[0][0]
    node.register_prehook(lambda gradients: calls.append([gradient.clone() for gradient in gradients]))
    node.register_hook(lambda _, gradients: calls.append([gradient.clone() for gradient in gradients]))
    module(torch.ones(4, 3))[0].sum().backward()
    calls.append("one that reaches the parameter")
    sum(part.sum() for part in module(torch.ones(4, 3))).backward()
    return calls


def hook_both_together(module: Any) -> list[Any]:
    calls: list[Any] = []
    torch.autograd.graph.register_multi_grad_hook(
        [module.weight, module.other], lambda gradients: calls.append([gradient is None for gradient in gradients])
    )
    module(torch.ones(4, 3))[0].sum().backward()
    return calls


UNREAD = [
    Case("twice", ReadTwice, use_twice, close="sums in another order"),
    Case("asked-none-twice", UnreadTwice, ask_for_what_has_none),
    Case("asked-unused", lambda: Unread(True), ask_for_unused),
    Case("asked-none", UnreadAlone, ask_for_what_has_none),
    Case("asked-none-behind-a-write", UnreadBehindAWrite, ask_for_what_has_none),
    Case("begun-at-a-region", UnreadBehindAWrite, ask_a_result_itself),
    *(Case(f"unread-{returned}", partial(Unread, returned), use_first_result) for returned in (False, True)),
    *(
        Case(f"view-{between}", partial(UnreadBehindAView, between), hook_what_is_unread)
        for between in (False, True)
    ),
    Case("like-a-parameter", LikeAParameter, update_at_once),
    Case("another-graph", UnreadByTwoRegions, while_another_graph_is_alive),
    Case("begin-at-parameter", UnreadByTwoRegions, begin_at_the_parameter),
    Case("node", UnreadByTwoRegions, hook_the_node),
    Case(
        "together", UnreadByTwoRegions, hook_both_together,
        fails={
            "every strategy": "PyTorch waits for the gradient of the parameter, because edges of a region lead to it"
        },
    ),
]  # fmt: skip


@every(UNREAD)
def test_hooks_of_parameters_that_the_loss_may_not_need_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)
