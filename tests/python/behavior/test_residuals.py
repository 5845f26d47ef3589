"""Residuals of differential equations and penalties of gradients, through operators that take lists or statistics."""

import copy

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy


class Residual(nn.Module):
    """u_t + u u_x - 0.01 u_xx of a network of (x, t), as the residual of Burgers' equation."""

    def __init__(self, joined: str) -> None:
        super().__init__()
        self.joined = joined
        self.layers = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        x = x.requires_grad_(True)
        t = t.requires_grad_(True)
        if self.joined == "cat":
            both = torch.cat([x, t], 1)
        elif self.joined == "hstack":
            both = torch.hstack([x, t])
        elif self.joined == "stack":
            both = torch.stack([x.squeeze(1), t.squeeze(1)], 1)
        else:
            parts = torch.cat([x, t], 1).chunk(2, 1)
            both = torch.cat([parts[1], parts[0]], 1)
        u = self.layers(both)
        first = torch.autograd.grad([u.sum()], [x, t], create_graph=True)
        u_x, u_t = first[0], first[1]
        assert u_x is not None
        assert u_t is not None
        u_xx = torch.autograd.grad([u_x.sum()], [x], create_graph=True)[0]
        assert u_xx is not None
        return (u_t + u * u_x - 0.01 * u_xx).square().mean()


class Penalty(nn.Module):
    """A critic whose gradient with respect to its input has a norm near one (WGAN-GP, arXiv:1704.00028)."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.last = nn.Conv1d(4, 8, 3), nn.Linear(8, 1)
        self.norm = nn.InstanceNorm1d(8, affine=kind == "affine", track_running_stats=kind == "running")

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        z = (x * t.t()).view(3, 4, 12).requires_grad_(True)
        h = self.first(z)
        if self.kind == "attention":
            h = nn.functional.scaled_dot_product_attention(h, h.sin(), h)
        else:
            h = nn.functional.leaky_relu(self.norm(h), 0.2)
        gradient = torch.autograd.grad([self.last(h.mean(2)).sum()], [z], create_graph=True)[0]
        assert gradient is not None
        return (gradient.flatten(1).norm(2, dim=1) - 1).square().mean() + h.mean()


class Distances(nn.Module):
    """An energy of distances between points, and between points and given ones, with its forces."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.embed = nn.Linear(12, 96)
        self.codes = nn.Parameter(torch.randn(5, 3))

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        points = self.embed(x * t.t()).view(12, 32, 3).requires_grad_(True)
        if self.kind == "one system":
            points = points[0]
        distances = torch.cdist(points, self.codes)
        # How far a point is from itself is rounding, and so would be its gradient.
        others = 1 - torch.eye(32, dtype=x.dtype)
        energy = torch.exp(-distances).sum() + (torch.exp(-torch.cdist(points, points)) * others).sum()
        forces = torch.autograd.grad([energy], [points], create_graph=True)[0]
        assert forces is not None
        return energy * 0.1 + forces.square().sum()


@pytest.mark.parametrize("strategy", ["none", "min_cut"])
@pytest.mark.parametrize(
    ("network", "dtype", "tolerance"),
    [
        *[(Residual(joined), torch.float32, 2e-7) for joined in ("cat", "hstack", "stack", "chunks")],
        # Distances by products have few exact digits in float32, in eager PyTorch, too.
        *[(Distances(kind), torch.float64, 1e-11) for kind in ("one system", "systems")],
        *[(Penalty(kind), torch.float32, 2e-7) for kind in ("plain", "affine", "running", "attention")],
    ],
    ids=lambda value: getattr(value, "joined", getattr(value, "kind", "")),
)
def test_residuals_and_penalties_are_planned(
    network: nn.Module, dtype: torch.dtype, tolerance: float, strategy: str
) -> None:
    torch.manual_seed(0)
    eager = copy.deepcopy(network).to(dtype)
    lowered = lowered_copy(eager, strategy)
    x, t = torch.rand(12, 1, dtype=dtype), torch.rand(12, 1, dtype=dtype)
    for _ in range(3):
        for module in (eager, lowered):
            module.zero_grad(set_to_none=True)
            try:
                module(x.clone(), t.clone()).backward()
            except RuntimeError as error:
                if module is eager and "_scaled_dot_product_flash_attention_for_cpu_backward" in str(error):
                    pytest.skip("Eager PyTorch, from 2.15 on, has no second derivative of this attention.")
                raise
        for (name, parameter), expected in zip(lowered.named_parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, expected.grad, rtol=tolerance, atol=tolerance, msg=name)
    assert_same(list(lowered.buffers()), list(eager.buffers()))
    [region] = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"]
    assert region["variants"][0]["on_tape"] == []


class Scaled(nn.Module):
    """Contractions with numbers that are tensors of no dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.matrix = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x.requires_grad_(True)
        y = torch.einsum("ij,->ij", [x, self.scale]) + torch.einsum(",ij->ij", [self.scale, x @ self.matrix])
        y = torch.tanh(y)
        gradient = torch.autograd.grad([y.sum()], [x], create_graph=True)[0]
        assert gradient is not None
        return y.sum() + torch.einsum("ij,->", [gradient, self.scale])


@pytest.mark.parametrize("strategy", ["none", "all"])
def test_contractions_with_numbers_have_second_derivatives(strategy: str) -> None:
    torch.manual_seed(0)
    eager = Scaled()
    lowered = lowered_copy(eager, strategy)
    x = torch.randn(3, 4)
    for module in (eager, lowered):
        module(x.clone()).backward()
    torch.testing.assert_close(lowered.scale.grad, eager.scale.grad)
    torch.testing.assert_close(lowered.matrix.grad, eager.matrix.grad)
