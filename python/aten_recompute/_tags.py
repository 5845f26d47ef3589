"""Saying by hand what is kept for the backward and what is computed again.

Each is the identity, callable from scripted code as ``torch.ops.aten_recompute.<name>``. The
strategies ``min_cut`` and ``budget`` look at them.
"""

from torch import Tensor, ops


def must_save(x: Tensor) -> Tensor:
    """Says that ``x`` is kept for the backward if the backward needs it: it is never computed again."""
    return ops.aten_recompute.must_save(x)


def must_recompute(x: Tensor) -> Tensor:
    """Says that ``x`` is not kept for the backward: where that needs it, it is computed again."""
    return ops.aten_recompute.must_recompute(x)


def prefer_save(x: Tensor) -> Tensor:
    """``must_save`` as a wish: ``min_cut`` follows it unless ``aggressive_recomputation`` is on."""
    return ops.aten_recompute.prefer_save(x)


def prefer_recompute(x: Tensor) -> Tensor:
    """``must_recompute`` as a wish, which ``min_cut`` follows as PyTorch's partitioner does."""
    return ops.aten_recompute.prefer_recompute(x)
