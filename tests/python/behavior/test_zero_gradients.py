"""A second derivative that is zero whatever its operands are does not require grad, as in eager PyTorch."""

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import lowered_copy


def derivative(y: Tensor, x: Tensor) -> Tensor:
    gradient = torch.autograd.grad([y], [x], create_graph=True)[0]
    assert gradient is not None
    return gradient


class OfAbs(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        slope = derivative(x.abs().sum(), x)
        return derivative(slope.sum(), x)


class OfL1Loss(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        loss = nn.functional.l1_loss(x, x.detach() * 2)
        slope = derivative(loss, x)
        return derivative(slope.sum(), x)


class Both(nn.Module):
    """A part of the second derivative is not zero, so that the sum requires grad."""

    def forward(self, x: Tensor) -> Tensor:
        energy = (x.abs() + x * x * x).sum()
        slope = derivative(energy, x)
        return derivative(slope.sum(), x)


class OfDistance(nn.Module):
    """It is zero for real numbers alone."""

    def forward(self, x: Tensor) -> Tensor:
        slope = derivative(x.abs().sum(), x)
        return derivative((slope - 0.5).abs().sum(), x)


class OfType(nn.Module):
    """The type that makes complex numbers of real ones is an argument of the method."""

    def forward(self, x: Tensor, dtype: int) -> Tensor:
        slope = derivative(x.to(dtype).abs().sum(), x)
        curvature = derivative((slope - 0.5).abs().sum(), x)
        return curvature * curvature + slope


@pytest.mark.parametrize("module", [OfAbs(), OfL1Loss(), Both()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("strategy", ["none", "all"])
def test_requires_grad_is_that_of_eager(module: nn.Module, strategy: str) -> None:
    lowered = lowered_copy(torch.jit.script(module), strategy)
    x = torch.randn(4, 3, requires_grad=True)
    expected = module(x)
    assert expected.requires_grad == isinstance(module, Both)
    for _ in range(3):
        result = lowered(x)
        assert result.requires_grad == expected.requires_grad
        assert torch.equal(result, expected)


class OfDropout(nn.Module):
    """A gradient that depends on no operand requires none, so that its own gradient raises."""

    def forward(self, x: Tensor) -> Tensor:
        slope = derivative(nn.functional.dropout(x, 0.3).cpu().sum(), x)
        return derivative(slope.sum(), x)


def test_what_raises_in_eager_raises() -> None:
    lowered = lowered_copy(torch.jit.script(OfDropout()), "none")
    for module in (OfDropout(), lowered):
        with pytest.raises(RuntimeError, match="does not require grad"):
            module(torch.randn(4, 3, requires_grad=True))


def step(module: nn.Module, x: Tensor, *arguments: int) -> tuple[Tensor, Tensor | None]:
    """Returns the result, and the gradient of its magnitude where it has one."""
    result = module(x, *arguments)
    x.grad = None
    if result.requires_grad:
        result.abs().sum().backward()
    return result, x.grad


def test_complex_numbers_after_real_ones_keep_their_gradients() -> None:
    lowered = lowered_copy(torch.jit.script(OfDistance()), "none")
    for dtype in (torch.float32, torch.complex64, torch.float64, torch.complex128):
        x = torch.randn(4, 3, dtype=dtype, requires_grad=True)
        expected, of_expected = step(OfDistance(), x)
        result, of_result = step(lowered, x)
        assert expected.requires_grad == result.requires_grad == dtype.is_complex
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)
        if dtype.is_complex:
            torch.testing.assert_close(of_result, of_expected, rtol=1e-5, atol=1e-5)


def test_a_number_that_makes_complex_tensors() -> None:
    lowered = aten_recompute.lower(torch.jit.script(OfType()), "none")
    own = torch.jit.script(OfType())
    # The numbers of torch.float32 and torch.complex64 in TorchScript.
    for dtype in (6, 9, 6, 9):
        x = torch.randn(4, 3, requires_grad=True)
        expected, of_expected = step(own, x, dtype)
        result, of_result = step(lowered, x, dtype)
        torch.testing.assert_close(result, expected)
        if of_expected is not None:
            torch.testing.assert_close(of_result, of_expected)
