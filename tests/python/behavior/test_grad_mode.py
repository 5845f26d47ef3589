"""Methods may branch on requires_grad and is_leaf, use no_grad and set_grad_enabled, and detach tensors."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from support.eager_comparison import Case, check, every
from support.nets import Tanh

MARKED = "TorchScript's result requires grad, although none of its operands does"


class IfRequiresGrad(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if y.requires_grad:
            y = torch.tanh(y * 2)
        return self.second(y)


class IfNotRequiresGrad(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.sigmoid(self.first(x))
        if not y.requires_grad:
            y = y.mul_(3)
        return self.second(y * y)


class IfLeaf(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y * 2) if y.is_leaf else self.second(y)


class IfInputRequiresGrad(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad and x.is_leaf:
            x = x * 2
        return self.second(self.first(x))


class IfParameterRequiresGrad(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        if self.first.weight.requires_grad:
            x = x * 2
        return self.second(self.first(x))


class IfDetached(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = y.detach()
        return self.second(y) if y.requires_grad and not z.requires_grad else self.second(z) * 3


class IfGradEnabled(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if torch.is_grad_enabled():
            y = y * 2
        return self.second(y)


class NoGrad(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        with torch.no_grad():
            scale = y.abs().amax() + self.second.weight.norm()
        return self.second(y / scale)


class NoGradLayers(Tanh):
    """The first layer is frozen."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = torch.tanh(self.first(x))
        return self.second(y)


class NoGradQuestion(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            y = self.first(x)
        if y.requires_grad:
            return self.second(y) * 5
        return self.second(y)


class SetGradEnabled(Tanh):
    """Switches gradients off and on again without a block."""

    def forward(self, x: Tensor) -> Tensor:
        torch.set_grad_enabled(False)
        y = torch.tanh(self.first(x))
        torch.set_grad_enabled(True)
        return self.second(y)


class NoGradWrites(Tanh):
    """Clamps weights at each call, under no_grad."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.second.weight.clamp_(-0.2, 0.2)
        return self.second(torch.tanh(self.first(x)))


class DetachInPlace(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.first(x))
        z = y * 2
        z.detach_()
        return self.second(y + z)


class StraightThrough(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return self.second(y + (y.round() - y).detach())


class RequiresGradInside(Tanh):
    """Makes a leaf and returns it; the caller differentiates with respect to it."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        z = x.detach().clone().requires_grad_(True)
        return self.second(torch.tanh(self.first(z))), z


class FreezesParameter(Tanh):
    def forward(self, x: Tensor) -> Tensor:
        self.second.bias.requires_grad_(False)
        return self.second(torch.tanh(self.first(x)))


def trained(input_requires_grad: bool = True, frozen: bool = False) -> Callable[[nn.Module], Any]:
    def use(module: nn.Module) -> Any:
        x = torch.randn(4, 6, requires_grad=input_requires_grad)
        if frozen:
            for parameter in module.parameters():
                parameter.requires_grad_(False)
        y = module(x)
        y, leaf = y if isinstance(y, tuple) else (y, x)
        if y.requires_grad:
            y.square().sum().backward()
        facts = [y.requires_grad, y.is_leaf, leaf.requires_grad, leaf.is_leaf]
        with torch.no_grad():
            z = module(x.detach())
        return y, leaf.grad, facts, z

    return use


_WAYS = {"": trained(), "_constant": trained(False), "_frozen": trained(False, True)}

CASES = [
    Case(f"{make.__name__}{suffix}", make, use,
         stock=MARKED if make is NoGradLayers and suffix == "_frozen" else "",
         before=trained() if make in (IfNotRequiresGrad, NoGradLayers) else None)
    for make in (
        IfRequiresGrad, IfNotRequiresGrad, IfLeaf, IfInputRequiresGrad, IfParameterRequiresGrad, IfDetached,
        IfGradEnabled, NoGrad, NoGradLayers, NoGradQuestion, SetGradEnabled, NoGradWrites, DetachInPlace,
        StraightThrough, RequiresGradInside, FreezesParameter,
    ) for suffix, use in _WAYS.items()
]  # fmt: skip


@every(CASES)
def test_methods_that_use_grad_mode_equal_eager(case: Case, strategy: str) -> None:
    check(case, strategy)
