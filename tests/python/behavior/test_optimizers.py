"""Optimizers of PyTorch train a lowered module as they train the module in eager."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from support.eager_comparison import Case, check, every

_apply_optimizer_in_backward: Any = pytest.importorskip(
    "torch.distributed.optim", reason="this PyTorch was built without torch.distributed"
)._apply_optimizer_in_backward


class Net(nn.Module):
    """Has layers of several kinds, and a weight that is used at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(13, 8)
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.batch_norm = nn.BatchNorm1d(16)
        self.down = nn.Linear(16, 8)
        self.prelu = nn.PReLU()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens).mean(1)
        x = x + self.down(self.prelu(self.batch_norm(self.up(self.norm(x)))))
        return nn.functional.linear(x, self.embedding.weight)


def tokens() -> Tensor:
    return torch.randint(0, 13, (6, 4))


Make = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


def steps(make: Make, count: int = 3, clip: bool = False) -> Callable[[nn.Module], Any]:
    def use(module: nn.Module) -> Any:
        optimizer = make(list(module.parameters()))
        losses = []
        for _ in range(count):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(tokens()), torch.randint(0, 13, (6,)))
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(module.parameters(), 0.5)
            optimizer.step()
            losses.append(loss)
        return losses, _state(optimizer)

    return use


def _state(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [value for each in optimizer.state.values() for value in each.values() if isinstance(value, Tensor)]


def closures(make: Make) -> Callable[[nn.Module], Any]:
    """Lets the optimizer call the module itself, several times in a step."""

    def use(module: nn.Module) -> Any:
        optimizer = make(list(module.parameters()))
        inputs, targets = tokens(), torch.randint(0, 13, (6,))
        calls = []

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(inputs), targets)
            loss.backward()
            calls.append(loss.detach())
            return loss

        for _ in range(2):
            optimizer.step(closure)  # type: ignore[arg-type]
        return calls

    return use


def accumulated(module: nn.Module) -> Any:
    """Runs three backwards into existing gradients, then a step."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(3):
        (nn.functional.cross_entropy(module(tokens()), torch.randint(0, 13, (6,))) / 3).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)


def groups(module: nn.Module) -> Any:
    """Uses parameter groups and a schedule."""
    decay = [p for name, p in module.named_parameters() if name.endswith("weight") and "norm" not in name]
    rest = [p for name, p in module.named_parameters() if not (name.endswith("weight") and "norm" not in name)]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=0.1
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(tokens()), torch.randint(0, 13, (6,))).backward()
        optimizer.step()
        schedule.step()


def averaged(module: nn.Module) -> Any:
    """Keeps a running mean of the weights beside the module."""
    means: dict[str, Tensor] = {name: p.detach().clone() for name, p in module.named_parameters()}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9, nesterov=True)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(tokens()), torch.randint(0, 13, (6,))).backward()
        optimizer.step()
        for name, parameter in module.named_parameters():
            means[name].lerp_(parameter.detach(), 0.1)
    return means


def in_backward(module: nn.Module) -> Any:
    """Updates each parameter as soon as its gradient is accumulated."""
    if not hasattr(module.up.weight, "_in_backward_optimizers"):
        _apply_optimizer_in_backward(torch.optim.SGD, list(module.parameters()), {"lr": 0.5})
    for _ in range(2):
        nn.functional.cross_entropy(module(tokens()), torch.randint(0, 13, (6,))).backward()
    return [p.grad for p in module.parameters()]


def sharpness_aware(module: nn.Module) -> Any:
    """Computes two gradients per step, the second one at weights that the first one has moved."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    inputs, targets = tokens(), torch.randint(0, 13, (6,))
    for _ in range(2):
        nn.functional.cross_entropy(module(inputs), targets).backward()
        moves = [0.05 * p.grad / (p.grad.norm() + 1e-6) for p in module.parameters()]
        with torch.no_grad():
            torch._foreach_add_(list(module.parameters()), moves)
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs), targets).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(module.parameters()), moves)
        optimizer.step()
        optimizer.zero_grad()


CASES = [
    Case("sgd", Net, steps(lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9))),
    Case("sgd_foreach", Net, steps(lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, foreach=True))),
    Case("sgd_fused", Net, steps(lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, fused=True))),
    Case("adamw", Net, steps(lambda p: torch.optim.AdamW(p, lr=0.05), clip=True)),
    Case("adamw_foreach", Net, steps(lambda p: torch.optim.AdamW(p, lr=0.05, foreach=True, amsgrad=True))),
    Case("adamw_fused", Net, steps(lambda p: torch.optim.AdamW(p, lr=0.05, fused=True))),
    Case("adafactor", Net, steps(lambda p: torch.optim.Adafactor(p, lr=0.05))),
    Case("rprop", Net, steps(lambda p: torch.optim.Rprop(p, lr=0.05))),
    Case("sgd_closure", Net, closures(lambda p: torch.optim.SGD(p, lr=0.5))),
    Case("lbfgs", Net, closures(lambda p: torch.optim.LBFGS(p, lr=0.5, max_iter=4))),
    Case("lbfgs_line_search", Net, closures(lambda p: torch.optim.LBFGS(p, max_iter=3, line_search_fn="strong_wolfe"))),
    Case("accumulated", Net, accumulated),
    Case("groups", Net, groups),
    Case("averaged", Net, averaged),
    Case("in_backward", Net, in_backward),
    Case("sharpness_aware", Net, sharpness_aware),
]


@every(CASES)
def test_training_with_an_optimizer_equals_eager(case: Case, strategy: str) -> None:
    check(case, strategy)
