"""Hooks on tensors, parameters and modules run as in eager, and optimizers may update parameters in the backward."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from support.eager_comparison import Case, check, every

HIDDEN = "TorchScript differentiates a subgraph as a whole, without the hooks of the values in it"


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.inner = nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(torch.relu(self.inner(self.embedding(tokens))), self.embedding.weight)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(8, 5, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Scaled(nn.Module):
    """Uses a parameter directly and through a view."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight) @ self.weight.t() * self.weight[0]


def floats(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape, requires_grad=True)


def tokens() -> Tensor:
    return torch.randint(0, 11, (2, 5))


# Each layer is between two others, so that gradients pass through it.
LAYERS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), floats(3, 8)),
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), floats(3, 8)
    ),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(2, 3, 3), nn.Conv1d(3, 2, 3)), floats(2, 2, 9)),
    "conv2d": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 3, 3)), floats(2, 2, 7, 7)),
    "transposed": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ConvTranspose2d(3, 2, 3)), floats(2, 2, 7, 7)),
    "batch_norm": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)
        ),
        floats(2, 2, 7, 7),
    ),
    "batch_norm_eval": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.BatchNorm1d(8)).eval(), floats(4, 8)
    ),
    "layer_norm": (lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.LayerNorm(8)), floats(3, 8)),
    "rms_norm": (lambda: nn.Sequential(nn.Linear(8, 8), nn.RMSNorm(8), nn.RMSNorm(8)), floats(3, 8)),
    "group_norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.GroupNorm(1, 4)), floats(2, 2, 7, 7)
    ),
    "instance_norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.Conv2d(4, 2, 3)),
        floats(2, 2, 9, 9),
    ),
    "prelu": (lambda: nn.Sequential(nn.Linear(8, 8), nn.PReLU(), nn.PReLU(8)), floats(3, 8)),
    "bilinear": (lambda: Pairs(), floats(3, 8)),
    "embedding": (lambda: nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 8), nn.LayerNorm(8)), tokens),
    "attention": (lambda: nn.Sequential(nn.Linear(8, 8), Attention(), Attention()), floats(2, 4, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), floats(2, 4, 8)),
    "tied": (Tied, tokens),
    "lstm": (lambda: nn.Sequential(nn.Linear(8, 8), Recurrent()), floats(2, 4, 8)),
    "scaled": (Scaled, floats(3, 8)),
}  # fmt: skip


class Pairs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 4)
        self.pair = nn.Bilinear(4, 4, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.pair(y, torch.tanh(y))


def optimizer_in_backward(make_input: Callable[[], Tensor], clear: bool = True) -> Callable[[nn.Module], Any]:
    """Updates each parameter when its gradient is complete, as torch.distributed.optim and torchtune do."""

    def use(module: Any) -> Any:
        seen: dict[str, list[Tensor]] = {name: [] for name, _ in module.named_parameters()}

        def hook(parameter: Tensor, name: str) -> None:
            gradient = parameter.grad
            assert gradient is not None
            seen[name].append(gradient.clone())
            with torch.no_grad():
                parameter.add_(gradient, alpha=-0.5)
            del gradient
            if clear:
                parameter.grad = None

        handles = [
            p.register_post_accumulate_grad_hook(lambda p, name=name: hook(p, name))
            for name, p in module.named_parameters()
        ]
        x = make_input()
        module(x).square().mean().backward()
        for handle in handles:
            handle.remove()
        return x.grad if x.is_floating_point() else None, seen

    return use


IN_BACKWARD = [
    Case(f"{name}{'' if clear else '_kept'}", make, optimizer_in_backward(make_input, clear))
    for name, (make, make_input) in LAYERS.items() for clear in (True, False)
]  # fmt: skip


@every(IN_BACKWARD)
def test_an_optimizer_in_the_backward_equals_eager(case: Case, strategy: str) -> None:
    check(case, strategy)


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
