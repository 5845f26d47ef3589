"""Callers may use torch.autograd around a lowered module as around a module in eager."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from support.eager_comparison import Case, check, every
from support.nets import Tanh

ORDER = "a region that runs again for a second derivative adds the gradients of an input in another order"
ZEROS = "TorchScript's own formulas give zeros where eager gives no gradient"
# Eager PyTorch lost the third derivative of a batch norm in 2.14; everything has to raise what it raises.
HAS_THIRD_OF_NORM = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14)
NO_THIRD_OF_NORM = "batch_norm does not support 3rd"
UNBATCHED = "TorchScript's own detach cannot be vectorized"


class Dropped(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.dropout(torch.tanh(self.first(x)), 0.4, True))


class Normed(Tanh):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.sigmoid(self.norm(self.first(x))))


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 3, 3, padding=1), nn.SiLU(), nn.GroupNorm(1, 3), nn.Flatten(), nn.Linear(18, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.unsqueeze(1))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(6, 18)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return torch.softmax(q @ k.t() * 0.4, -1) @ v


class Copied(Tanh):
    """Writes to uninitialized memory."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.empty_like(x)
        y.copy_(torch.tanh(x))
        return self.second(self.first(y * y))


class Written(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        y[1:] = torch.tanh(x[:-1])
        y[:, 0].zero_()
        y[0] += x[0] * x[1]
        return self.second(self.first(y * y))


class TwoResults(Tanh):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.first(x))
        return self.second(h), h.exp()


def double(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().double()


def data(module: nn.Module, rows: int = 4) -> Tensor:
    return torch.randn(rows, 6, dtype=next(module.parameters()).dtype, requires_grad=True)


def gradient_penalty(module: nn.Module) -> Any:
    """Trains as one trains a Wasserstein critic."""
    x = data(module)
    y = module(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (y.mean() + 10 * (g.norm(dim=1) - 1).square().mean()).backward()
    return y, g, x.grad


def hessian_vector(module: nn.Module) -> Any:
    x = data(module)
    parameters = list(module.parameters())
    first = torch.autograd.grad(module(x).square().mean(), parameters, create_graph=True)
    return first, torch.autograd.grad(first, parameters, [torch.randn_like(g) for g in first], allow_unused=True)


def cotangents_too(module: nn.Module) -> Any:
    """The incoming gradient requires grad, as in torch.autograd.functional.jvp."""
    x = data(module)
    y = module(x)
    v = torch.randn_like(y).requires_grad_()
    (g,) = torch.autograd.grad(y, x, v, create_graph=True)
    return torch.autograd.grad(g.square().sum(), [x, v], allow_unused=True)


def third(module: nn.Module) -> Any:
    x = data(module)
    value, found = module(x).sum(), []
    for _ in range(3):
        (g,) = torch.autograd.grad(value, x, create_graph=True)
        found.append(g)
        value = g.square().sum()
    value.backward()
    return found, x.grad


def create_graph_backward(module: nn.Module) -> Any:
    x = data(module)
    module(x).square().mean().backward(create_graph=True)
    grads = [p.grad for p in module.parameters()]
    penalty: Any = sum(g.square().sum() for g in grads if g is not None)
    for p in module.parameters():
        p.grad = None
    penalty.backward()
    return grads, x.grad


def create_graph_unused(module: nn.Module) -> Any:
    """Asks for the graph of the gradient without using it, as second-order optimizers do in some steps."""
    x = data(module)
    return torch.autograd.grad(module(x).square().mean(), [x, *module.parameters()], create_graph=True)


def gradgradcheck(module: nn.Module) -> Any:
    def function(x: Tensor) -> Any:
        torch.manual_seed(5)
        return module(x)

    x = data(module, 3)
    return torch.autograd.gradcheck(function, x), torch.autograd.gradgradcheck(function, x)


def jacobian(**options: Any) -> Callable[[nn.Module], Any]:
    return lambda module: torch.autograd.functional.jacobian(lambda x: module(x), data(module), **options)


def hessian(module: nn.Module) -> Any:
    return torch.autograd.functional.hessian(lambda x: module(x).square().sum(), data(module, 2))


def functional_products(module: nn.Module) -> Any:
    x = data(module)
    v = torch.randn_like(x)
    functional = torch.autograd.functional

    def scalar(z: Tensor) -> Any:
        return module(z).square().sum()

    return functional.vjp(scalar, x), functional.hvp(scalar, x, v), functional.jvp(scalar, x, v)


def batched(module: nn.Module) -> Any:
    x = data(module)
    y = module(x)
    wanted = [x, *module.parameters()]
    return torch.autograd.grad(y, wanted, torch.randn(3, *y.shape), is_grads_batched=True)


def retained_twice(module: nn.Module) -> Any:
    x = data(module)
    y = module(x)
    y = y[0] if isinstance(y, tuple) else y
    y.sum().backward(retain_graph=True)
    y.square().sum().backward(retain_graph=True)
    y.mean().backward()
    return y, x.grad


def one_result_after_the_other(module: nn.Module) -> Any:
    x = data(module)
    first, second = module(x)
    kept = torch.autograd.grad(second.sum(), [x, *module.parameters()], retain_graph=True, allow_unused=True)
    first.square().sum().backward(retain_graph=True)
    return kept, torch.autograd.grad(second.square().sum(), x), x.grad


def materialized(module: nn.Module) -> Any:
    x, other = data(module), torch.ones(2, requires_grad=True)
    return torch.autograd.grad(module(x).sum(), [x, other], materialize_grads=True)


def backward_to_some(module: nn.Module) -> Any:
    x = data(module)
    module(x).sum().backward(inputs=[x, next(module.parameters())])
    return x.grad


def through_freed_graph(module: nn.Module) -> Any:
    x = data(module)
    y = module(x).sum()
    y.backward()
    y.backward()


def penalized(module: nn.Module) -> Any:
    return gradient_penalty(module), gradient_penalty(module)


_NETS = [Tanh, Dropped, Normed, Convolved, Attending]

CASES = [
    *(Case(f"{use.__name__}_{make.__name__}", double(make), use,
           close=ORDER if make in (Convolved, Attending) else "")
      for use in (penalized, hessian_vector, cotangents_too, create_graph_backward) for make in _NETS),
    *(Case(f"third_{make.__name__}", double(make), third,
           stock=ZEROS if make in (Tanh, Dropped) or (make is Normed and HAS_THIRD_OF_NORM) else "",
           error="" if make is not Normed or HAS_THIRD_OF_NORM else NO_THIRD_OF_NORM) for make in _NETS),
    Case("cotangents_too_Copied", double(Copied), cotangents_too),
    Case("cotangents_too_Written", double(Written), cotangents_too, close=ORDER),
    Case("third_Written", double(Written), third, stock=ZEROS, close=ORDER),
    *(Case(f"gradgradcheck_{make.__name__}", double(make), gradgradcheck) for make in _NETS),
    Case("create_graph_unused", Tanh, create_graph_unused),
    Case("hessian", Tanh, hessian),
    Case("functional_products", Tanh, functional_products),
    Case("jacobian", Tanh, jacobian()),
    Case("jacobian_create_graph", Tanh, jacobian(create_graph=True)),
    Case("jacobian_vectorize", Tanh, jacobian(vectorize=True), stock=UNBATCHED, asks_more=True),
    Case("jacobian_vectorize_attention", Attending, jacobian(vectorize=True), stock=UNBATCHED, asks_more=True),
    Case("batched", Tanh, batched, stock=UNBATCHED, asks_more=True),
    Case("batched_convolution", Convolved, batched),
    *(Case(f"retained_twice_{make.__name__}", make, retained_twice) for make in [*_NETS, TwoResults]),
    Case("one_result_after_the_other", TwoResults, one_result_after_the_other, stock=ZEROS),
    Case("materialized", Tanh, materialized),
    Case("backward_to_some", Tanh, backward_to_some),
    Case("through_freed_graph", Tanh, through_freed_graph, error="Trying to backward through the graph a second time"),
]  # fmt: skip


@every(CASES)
def test_uses_of_autograd_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)
