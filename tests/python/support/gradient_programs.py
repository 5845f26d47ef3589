"""Programs that ask for gradients themselves: forces, stresses, Hessians, penalties, and steps of an optimizer."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Potential(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, width), nn.Linear(width, width), nn.Linear(width, 1)


class Forces(Potential):
    """As interatomic potentials take them: with a graph in training only."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        energy = self.c(F.silu(self.b(torch.tanh(self.a(x))))).sum()
        ones: list[Tensor | None] = [torch.ones_like(energy)]
        gradient = torch.autograd.grad(
            [energy], [x], grad_outputs=ones, create_graph=self.training, retain_graph=self.training
        )[0]
        assert gradient is not None
        return energy, -gradient


class Stress(Potential):
    """A leaf that the method makes, and two targets."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        displacement = torch.zeros(3, 3, dtype=x.dtype)
        displacement.requires_grad_(True)
        x.requires_grad_(True)
        moved = x + torch.einsum("ij,jk->ik", x, 0.5 * (displacement + displacement.t()))
        energy = self.c(F.silu(self.b(F.silu(self.a(moved))))).sum()
        forces, virial = torch.autograd.grad(
            [energy],
            [x, displacement],
            create_graph=self.training,
            retain_graph=self.training,
            allow_unused=True,
        )
        assert forces is not None
        assert virial is not None
        return energy, -forces, virial


class Unused(Potential):
    """A target without a gradient, and a branch on that."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        energy = self.c(torch.tanh(self.a(x))).sum()
        gradients = torch.autograd.grad([energy], [x, y], create_graph=True, allow_unused=True)
        of_x, of_y = gradients[0], gradients[1]
        if of_y is None:
            of_y = torch.zeros_like(y)
        assert of_x is not None
        return energy, of_x + 1, of_y


class TwoOutputs(Potential):
    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = torch.tanh(self.a(x)) * torch.sigmoid(self.a(y))
        first, second = self.c(hidden).sum(), (hidden * hidden).sum()
        gradients = torch.autograd.grad([first, second], [x, y], create_graph=True)
        of_x, of_y = gradients[0], gradients[1]
        assert of_x is not None
        assert of_y is not None
        return first + second, of_x, of_y


class GivenGradient(Potential):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.a(x))
        given: list[Tensor | None] = [torch.cos(hidden)]
        gradient = torch.autograd.grad([hidden], [x], grad_outputs=given, create_graph=True, retain_graph=True)[0]
        assert gradient is not None
        return hidden, gradient


class Hessian(Potential):
    """Gradients of a gradient, in a loop, of a leaf that shares the caller's memory."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x.detach().requires_grad_(True)
        energy = self.c(torch.tanh(self.a(x))).sum()
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        rows: list[Tensor] = []
        for k in range(3):
            row = torch.autograd.grad([gradient[:, k].sum()], [x], create_graph=True, retain_graph=True)[0]
            assert row is not None
            rows.append(row)
        return energy, gradient, torch.stack(rows)


class ManyOperators(Potential):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        h = F.layer_norm(self.a(x), [16])
        h = torch.softmax(h, -1) * F.gelu(h) + F.elu(h) * torch.clamp(h, -0.5, 0.5) + F.softplus(h)
        h = torch.cat([h, h * 2], -1).view(-1, 2, 16).sum(1) + torch.where(h > 0, h * h, h)
        distances = (x[:, None] - x[None] + 0.3).norm(2, dim=-1)
        h = self.b(h).chunk(2, -1)[0] * torch.log_softmax(h, -1)[:, :8] + torch.exp(-distances).sum()
        h = h + torch.sqrt(h.abs() + 1) + h.pow(2).mean(-1, keepdim=True) + torch.rsqrt(h * h + 1)
        h = h + torch.sin(h).cumsum(0)
        energy = h.sum() + h.max() + h.std() + torch.linalg.norm(h) + F.leaky_relu(h).mean() + F.relu(h).sum()
        energy = energy + F.mse_loss(h, torch.ones_like(h))
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        return energy, gradient


class Messages(Potential):
    """Gathers and scatters between nodes and edges."""

    def forward(self, x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        h = self.a(x)
        message = h[i] * torch.sigmoid(h.index_select(0, i.flip(0)))
        wide = i[:, None].expand_as(message)
        sums = torch.zeros_like(h).index_add(0, i, message) + torch.zeros_like(h).scatter_add(0, wide, message)
        sums = sums + h.gather(0, wide[: h.size(0)])
        energy = self.c(torch.tanh(sums)).sum()
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        return energy, gradient


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 8, 3, padding=1), nn.Conv1d(8, 2, 3)
        self.groups, self.batch = nn.GroupNorm(2, 8), nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        h = self.second(self.batch(torch.relu(self.groups(torch.tanh(self.first(x))))))
        energy = F.avg_pool1d(h, 2).pow(2).sum() + F.max_pool1d(h, 2).sum()
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        return energy, gradient


class Penalty(Potential):
    """The gradient penalty of a critic, at random points, with dropout."""

    def critic(self, x: Tensor) -> Tensor:
        hidden = F.dropout(F.leaky_relu(self.a(x)), 0.3, self.training)
        score: Tensor = self.c(F.leaky_relu(self.b(hidden)))
        return score

    def forward(self, real: Tensor, fake: Tensor) -> tuple[Tensor, Tensor]:
        share = torch.rand_like(real)
        x = (real * share + fake * (1 - share)).detach().requires_grad_(True)
        gradient = torch.autograd.grad([self.critic(x).sum()], [x], create_graph=True)[0]
        assert gradient is not None
        return ((gradient.norm(2, 1) - 1) ** 2).mean(), self.critic(real).mean() - self.critic(fake).mean()


class InnerStep(Potential):
    """A step of gradient descent within the method, as meta-learning takes it."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.a(x))
        loss = (self.c(hidden) - y).pow(2).mean()
        gradients = torch.autograd.grad([loss], [self.c.weight, self.c.bias], create_graph=True)
        of_weight, of_bias = gradients[0], gradients[1]
        assert of_weight is not None
        assert of_bias is not None
        return loss, F.linear(hidden, self.c.weight - 0.1 * of_weight, self.c.bias - 0.1 * of_bias)


class LeavesInputAsItWas(Potential):
    def forward(self, x: Tensor, with_forces: bool = True) -> tuple[Tensor, Tensor]:
        did_require_grad = x.requires_grad
        x.requires_grad_(True)
        energy = self.c(torch.tanh(self.a(x))).sum()
        forces = torch.zeros_like(x)
        if with_forces:
            gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
            assert gradient is not None
            forces = -gradient
        if not did_require_grad:
            x.requires_grad_(False)
        return energy, forces


class WritesInPlace(Potential):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        h = self.a(x) * 2
        h.mul_(3.0)
        h[:, 0] = 1.0
        h += h.tanh()
        energy = self.c(h).sum()
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        gradient = gradient.clone()
        gradient[0] = 0.0
        return energy, gradient


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.output = nn.Linear(3, 24), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x.requires_grad_(True)
        q, k, v = self.qkv(x).chunk(3, -1)
        h = torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v
        energy = self.output(h).sum()
        gradient = torch.autograd.grad([energy], [x], create_graph=True)[0]
        assert gradient is not None
        return energy, gradient


class OfHiddenValue(Potential):
    """The target is a value in the middle, which the result reads, too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.a(x))
        energy = self.c(torch.tanh(self.b(hidden))).sum()
        gradient = torch.autograd.grad([energy], [hidden], create_graph=True)[0]
        assert gradient is not None
        return energy + hidden.sum(), gradient * hidden


class TargetsThatAreCopies(Potential):
    """Targets with the values of x, which the energy reads, too. The last one is x itself."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        transposed = x.t().t()
        added, subtracted = x + 0, x - 0
        multiplied, divided = x * 1.0, x / 1
        same = x.contiguous()
        parts = [transposed, added, subtracted, multiplied, divided, same]
        energy = self.c(torch.tanh(self.a(x))).sum()
        for i, part in enumerate(parts):
            energy = energy + (i + 1) * self.c(torch.tanh(self.b(torch.tanh(self.a(part))))).sum()
        gradients = torch.autograd.grad([energy], parts, create_graph=True)
        total = torch.zeros_like(x)
        for i, gradient in enumerate(gradients):
            assert gradient is not None
            total = total + (i + 1) * gradient.sin()
        return energy, total


class WithoutGraph(Potential):
    """The gradient is a constant for the training."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.a(x))
        energy = self.c(torch.tanh(self.b(hidden))).sum()
        gradient = torch.autograd.grad([energy], [x], retain_graph=True)[0]
        assert gradient is not None
        return energy, gradient * self.c(hidden).sum()


class Dynamics(Potential):
    """Steps in a loop, each along a gradient."""

    def forward(self, x: Tensor, steps: int = 3) -> tuple[Tensor, Tensor]:
        for _ in range(steps):
            x = x.detach().requires_grad_(True)
            gradient = torch.autograd.grad([self.c(torch.tanh(self.a(x))).sum()], [x], create_graph=True)[0]
            assert gradient is not None
            x = x - 0.1 * gradient
        return x, self.c(torch.tanh(self.a(x))).sum()


class ThirdDerivatives(nn.Module):
    """Operators whose formulas have branches, lists, or gradients by autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(3, 8)

    def forward(self, x: Tensor, name: str = "") -> tuple[Tensor, Tensor]:
        h = self.a(x)
        if name == "logit":
            h = torch.logit(torch.sigmoid(h))
        elif name == "norm_0":
            h = h * h.norm(0)
        elif name == "norm_1":
            h = h * h.norm(1, dim=1, keepdim=True)
        elif name == "circular_padding":
            h = F.pad(h[None], [1, 2], mode="circular")
        elif name == "as_strided":
            h = (h * 1.5).as_strided([3, 2], [8, 1], 1)
        elif name == "tensor_split":
            h = torch.tensor_split(h, 3, 1)[1]
        elif name == "tensor_split_at":
            h = torch.tensor_split(h, [2, 5], 1)[1]
        else:
            h = F.adaptive_avg_pool1d(h[None], 3)
        first = torch.autograd.grad([h.pow(3).sum()], [x], create_graph=True)[0]
        assert first is not None
        second = torch.autograd.grad([first.pow(2).sum()], [x], create_graph=True)[0]
        assert second is not None
        return h.pow(2).sum(), second


def points(*sizes: int, requires_grad: bool = False) -> Tensor:
    return torch.randn(*(sizes or (5, 3)), requires_grad=requires_grad)


# The network, and what makes the inputs of a call.
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Any, ...]]]] = {
    "forces": (Forces, lambda: (points(),)),
    "stress": (Stress, lambda: (points(),)),
    "unused": (Unused, lambda: (points(requires_grad=True), points(2, requires_grad=True))),
    "two_outputs": (TwoOutputs, lambda: (points(requires_grad=True), points(requires_grad=True))),
    "given_gradient": (GivenGradient, lambda: (points(requires_grad=True),)),
    "hessian": (Hessian, lambda: (points(),)),
    "many_operators": (ManyOperators, lambda: (points(),)),
    "messages": (Messages, lambda: (points(6, 3), torch.tensor([0, 1, 1, 2, 5, 4, 3]))),
    "convolutions": (Convolutions, lambda: (points(4, 3, 12),)),
    "penalty": (Penalty, lambda: (points(), points())),
    "inner_step": (InnerStep, lambda: (points(), points(5, 1))),
    "leaves_input_as_it_was": (LeavesInputAsItWas, lambda: (points(),)),
    "writes_in_place": (WritesInPlace, lambda: (points(),)),
    "attention": (Attention, lambda: (points(2, 4, 3),)),
    "of_hidden_value": (OfHiddenValue, lambda: (points(requires_grad=True),)),
    "targets_that_are_copies": (TargetsThatAreCopies, lambda: (points(requires_grad=True),)),
    "without_graph": (WithoutGraph, lambda: (points(requires_grad=True),)),
    "dynamics": (Dynamics, lambda: (points(),)),
}
