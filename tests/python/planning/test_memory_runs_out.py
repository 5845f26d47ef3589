"""Where a planned step runs out of memory, the error says what the plan promised, and what would help."""

import re

import pytest
import torch
from torch import Tensor, nn

from benchmarks.memory import Tracker
from support.helpers import lowered_copy
from support.nets import Residual


class Loss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Residual(16)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).square().mean()


def message_at(module: nn.Module, tracker: Tracker, request: int) -> str:
    module.zero_grad(set_to_none=True)
    tracker.fail(request)
    try:
        with pytest.raises(RuntimeError, match="can't allocate memory") as raised:
            module(torch.randn(256, 16)).backward()
    finally:
        tracker.fail(0)
    return str(raised.value)


def count_requests(module: nn.Module, tracker: Tracker) -> tuple[int, int]:
    """Returns the numbers of requests of the forward and of the whole step."""
    module.zero_grad(set_to_none=True)
    tracker.fail(0)
    loss = module(torch.randn(256, 16))
    of_forward = tracker.requests
    loss.backward()
    return of_forward, tracker.requests


@pytest.mark.parametrize("in_backward", [False, True])
def test_the_error_names_peaks_and_what_can_be_reached(tracker: Tracker, in_backward: bool) -> None:
    module = lowered_copy(Loss(), "budget", memory_budget=0.9, cost_model="flops")
    for _ in range(4):
        module.zero_grad(set_to_none=True)
        module(torch.randn(256, 16)).backward()
    of_forward, of_step = count_requests(module, tracker)
    request = (of_forward + of_step) // 2 if in_backward else of_forward // 2
    text = message_at(module, tracker, request)
    found = re.search(
        r"predicted peak of ([\d.]+) KiB, measured ([\d.]+) KiB; a memory_budget can go down to ([\d.]+) KiB", text
    )
    assert found, text
    predicted, measured, smallest = map(float, found.groups())
    assert smallest < predicted
    assert measured == pytest.approx(predicted, rel=0.1)
    # The step after it is as good as any.
    assert count_requests(module, tracker) == (of_forward, of_step)


def test_nothing_is_said_of_plans_where_there_is_none(tracker: Tracker) -> None:
    module = lowered_copy(Loss(), "none")
    for _ in range(2):
        module.zero_grad(set_to_none=True)
        module(torch.randn(256, 16)).backward()
    of_forward, _ = count_requests(module, tracker)
    assert "predicted" not in message_at(module, tracker, of_forward // 2)
