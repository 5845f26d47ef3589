"""What training holds between steps, so that a budget for all of it can be given."""

import collections
import copy
from typing import Any

import torch
from torch import Tensor, nn

from ._errors import PREFIX


def held_bytes(module: nn.Module, *, buckets: bool = False, optimizer: torch.optim.Optimizer | None = None) -> int:
    """Returns the bytes that training holds from step to step, beside the parameters and buffers.

    The option ``memory_budget`` is for what a step takes above the memory in use before it, so what is held is
    subtracted from a budget for all of training::

        held = aten_recompute.held_bytes(model, buckets=True, optimizer=optimizer)
        lowered = aten_recompute.lower(model, "budget", memory_budget=600 * 2**20 - held, accumulate=True)

    Args:
        module: the module that is trained, lowered or not, or the ``DistributedDataParallel`` around it.
        buckets: whether to count the buckets of ``DistributedDataParallel``, which are as large as the parameters that
            require grad, or gradients that are kept from step to step (``zero_grad(set_to_none=False)``).
        optimizer: whose state to count. Before its first step, what that step will make is counted: the step is tried
            with tensors of the same sizes that have no memory.

    Returns:
        The number of bytes. Parameters that begin at the same place in memory count once.

    Raises:
        RuntimeError: the optimizer has no state yet, and its step cannot be tried in that way; take a step before.
    """
    held = 0
    if buckets:
        held += _bytes_of([p for p in module.parameters() if p.requires_grad])
    if optimizer is not None:
        held += _bytes_of(_tensors_of(optimizer.state or _state_after_a_step(optimizer)))
    return held


def _bytes_of(tensors: list[Tensor]) -> int:
    found: dict[int, int] = {}
    for tensor in tensors:
        # Meta tensors have no address, and each stands for memory of its own here.
        place = id(tensor) if tensor.is_meta else tensor.data_ptr()
        found[place] = max(found.get(place, 0), tensor.numel() * tensor.element_size())
    return sum(found.values())


def _tensors_of(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for each in value for tensor in _tensors_of(each)]


def _state_after_a_step(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    trial = copy.copy(optimizer)
    trial.state = collections.defaultdict(dict)
    step = type(trial).step
    step = getattr(step, "__wrapped__", step)  # without hooks, those of the optimizer and those of all optimizers
    for group in optimizer.param_groups:
        parameters = [torch.empty_like(p, device="meta", requires_grad=p.requires_grad) for p in group["params"]]
        trained = [p for p in parameters if p.requires_grad]
        for parameter in trained:
            parameter.grad = torch.empty_like(parameter)
        trial.param_groups = [{**group, "params": parameters, "fused": False, "foreach": False}]
        try:
            step(trial)
        except Exception as error:
            # Some optimizers make the whole state of a group first, and then need values.
            if all(trial.state.get(p) for p in trained):
                continue
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise RuntimeError(
                f"{PREFIX}the state of {type(optimizer).__name__} is not known before its first step ({reason}); "
                "take a step first"
            ) from error
    return dict(trial.state)
