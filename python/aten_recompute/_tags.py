"""Marks which values the backward may find in memory and which it has to recompute.

Each function returns its argument unchanged and can be called from scripted code as
``torch.ops.aten_recompute.<name>``. The strategy ``min_cut`` obeys all four marks, ``budget`` obeys ``must_save`` and
``must_recompute``; the other strategies ignore them. A mark on a view stands for the tensor that is viewed. A value
that is marked both ``must_save`` and ``must_recompute`` is an error at the first call of the lowered module.
"""

from torch import Tensor, ops


def must_save(x: Tensor) -> Tensor:
    """Marks ``x`` as never recomputed: if the backward needs it, it is kept."""
    marked: Tensor = ops.aten_recompute.must_save(x)
    return marked


def must_recompute(x: Tensor) -> Tensor:
    """Marks ``x`` as never kept for the backward: if the backward needs it, it is recomputed."""
    marked: Tensor = ops.aten_recompute.must_recompute(x)
    return marked


def prefer_save(x: Tensor) -> Tensor:
    """Marks ``x`` as ``must_save`` does, except that ``min_cut`` with ``aggressive_recomputation`` ignores it."""
    marked: Tensor = ops.aten_recompute.prefer_save(x)
    return marked


def prefer_recompute(x: Tensor) -> Tensor:
    """Marks ``x`` as ``must_recompute`` does. A ``must_save`` on the same value overrides it."""
    marked: Tensor = ops.aten_recompute.prefer_recompute(x)
    return marked
