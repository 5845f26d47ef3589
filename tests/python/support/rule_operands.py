"""Operands of the cases of test_rules.py."""

import torch

from support.rule_cases_tensors import BF16, F16, F32, F64, Factory

HALVES = (F32, F64, BF16, F16)


def n(*size: int) -> Factory:
    """Normally distributed numbers that do not require grad."""
    return lambda dtype: torch.randn(size).to(dtype)


def positive(*size: int) -> Factory:
    return lambda dtype: (torch.rand(size) + 0.1).to(dtype).requires_grad_()


def unit(*size: int) -> Factory:
    """Numbers between 0 and 1, both excluded."""
    return lambda dtype: (torch.rand(size) * 0.9 + 0.05).to(dtype).requires_grad_()


def small(*size: int) -> Factory:
    """Integers from -2 to 2, so that there are equal elements and zeros."""
    return lambda dtype: torch.randint(-2, 3, size).to(dtype).requires_grad_()


def index(high: int, *size: int) -> Factory:
    return lambda dtype: torch.randint(0, high, size)


def frozen(factory: Factory) -> Factory:
    return lambda dtype: factory(dtype).detach()


def transposed(*size: int) -> Factory:
    """Numbers whose last two dimensions are transposed in memory."""
    return lambda dtype: torch.randn(*size[:-2], size[-1], size[-2]).to(dtype).transpose(-1, -2).requires_grad_()


def fixed(*values: float) -> Factory:
    return lambda dtype: torch.tensor(values).to(dtype).requires_grad_()


def float32(factory: Factory) -> Factory:
    return lambda dtype: factory(F32).detach().requires_grad_()
