"""Second derivatives: those of a random projection of the first ones."""

import torch
from torch import Tensor

# Tolerances relative to the largest derivative. A region that is differentiated twice runs again under ordinary
# autograd, so that the gradients of an input that is used several times are added in another order.
LAST_BITS = {
    torch.float64: 1e-11,
    torch.complex128: 1e-11,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 1e-1,
}

Gradients = list[Tensor | None]


def random_like(value: Tensor, generator: torch.Generator) -> Tensor:
    """Returns random numbers of the value's shape, dtype and layout, which is strided or sparse COO."""
    strided = value.to_dense() if value.layout != torch.strided else value
    values = torch.randn(strided.shape, dtype=strided.dtype, generator=generator).to(strided.device)
    return values.to_sparse() if value.layout == torch.sparse_coo else values


def derivatives(
    outputs: list[Tensor], inputs: list[Tensor], cotangents: list[Tensor], generator: torch.Generator
) -> tuple[Gradients, Gradients]:
    """Returns the first derivatives, and those of a random projection of them to inputs and cotangents."""
    cotangents = [cotangent.requires_grad_() for cotangent in cotangents]
    first = torch.autograd.grad(outputs, inputs, cotangents, create_graph=True, allow_unused=True)
    projected = [gradient for gradient in first if gradient is not None and gradient.requires_grad]
    second: Gradients = []
    if projected:
        weights = [random_like(gradient.detach(), generator) for gradient in projected]
        second = list(torch.autograd.grad(projected, [*inputs, *cotangents], weights, allow_unused=True))
    return [None if gradient is None else gradient.detach() for gradient in first], second


def difference(actual: Gradients, expected: Gradients) -> str:
    """Describes the first difference beyond the rounding of sums; returns an empty string if there is none."""
    if len(actual) != len(expected):
        return f"{len(actual)} second derivatives in place of {len(expected)}"
    scale = max([_largest(gradient) for gradient in expected if gradient is not None], default=0.0)
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        where = f"second derivative {index} of {len(expected)}: "
        if a is None or b is None:
            if a is not b:
                return where + ("None" if a is None else "not None")
            continue
        if a.dtype != b.dtype or a.shape != b.shape:
            return where + f"{a.dtype} {list(a.shape)} in place of {b.dtype} {list(b.shape)}"
        tolerance = scale * LAST_BITS.get(b.dtype, 0.0)
        a, b = _plain(a), _plain(b)
        if not torch.allclose(a, b, 0.0, tolerance, equal_nan=True):
            return where + f"differs by up to {(a - b).abs().max().item():.3g}, the largest is {scale:.3g}"
    return ""


def is_rounded(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors of the same type and shape differ by the rounding of sums only."""
    tolerance = _largest(b) * LAST_BITS.get(b.dtype, 0.0)
    return torch.allclose(_plain(a), _plain(b), 0.0, tolerance, equal_nan=True)


def _plain(value: Tensor) -> Tensor:
    """Returns the value dense, as real numbers in double precision."""
    value = value.to_dense() if value.layout != torch.strided else value
    return torch.view_as_real(value.resolve_conj()).double() if value.is_complex() else value.double()


def _largest(value: Tensor) -> float:
    plain = _plain(value).nan_to_num(0.0, 0.0, 0.0).abs()
    return plain.max().item() if plain.numel() else 0.0
