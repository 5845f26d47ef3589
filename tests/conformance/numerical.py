"""Compares derivatives with differences of results, as torch.autograd.gradcheck does, in eager mode and lowered."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .cases import Sample

SEED = 7


def _function(module: Callable[..., Any], sample: Sample) -> Callable[..., Any]:
    def function(*tensors: Tensor) -> Any:
        torch.manual_seed(SEED)  # as gradcheck calls it many times
        outputs = module(*tensors)
        if sample.process is not None:
            outputs = sample.process(outputs[0] if len(outputs) == 1 else outputs)
        return tuple(each for each in pytree.tree_leaves(outputs) if each.requires_grad)

    return function


def why_wrong(module: nn.Module, sample: Sample, order: int) -> str:
    """Returns why gradcheck, or gradgradcheck for ``order`` 2, does not accept the module's gradients; "" if it does.

    Parameters of the module are not checked, nor gradients with respect to batches of gradients.
    """
    check = torch.autograd.gradcheck if order == 1 else torch.autograd.gradgradcheck
    tensors = [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in sample.tensors]
    options: dict[str, Any] = {"fast_mode": True, "check_batched_grad": False, "nondet_tol": sample.nondeterminism}
    try:
        check(_function(module, sample), tensors, **options)
    except Exception as error:  # eager's decides what is right
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
    return ""
