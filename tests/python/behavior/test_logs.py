"""Logs by topic: which lines there are, and what they say of a module that is compiled again."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from aten_recompute import set_logs
from support.helpers import lowered_copy


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.scale = 2.5

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = torch.relu(self.linear(x)) * self.scale
        if mask is not None:
            y = y * mask
        return nn.functional.dropout(y, 0.5, self.training).sum()


@pytest.fixture(autouse=True)
def no_topics() -> Iterator[None]:
    yield
    set_logs()


def lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    """Returns what was logged since the last call: "[specialize] forward is ..."."""
    return [line.split("] ", 3)[3] for line in capfd.readouterr().err.splitlines() if "[aten_recompute]" in line]


X = torch.randn(4, 8)


def test_a_method_that_is_compiled_again_says_what_differs(capfd: pytest.CaptureFixture[str]) -> None:
    set_logs("all=off,specialize")
    lowered = lowered_copy(Net())
    lowered(X)
    lowered(X)
    assert lines(capfd) == []
    lowered.eval()
    lowered(X)
    lowered.train()
    lowered(X)
    lowered(X, X)
    lowered(X)
    lowered.scale = 3.5
    lowered(X)
    assert lines(capfd) == [
        f"[specialize] forward is compiled again (for the {number}. time): {why}"
        for number, why in [
            (2, "attribute training is False instead of True"),
            (3, "input mask is not None any more"),
            (4, "attribute scale is 3.5 instead of 2.5"),
        ]
    ]


def test_a_region_that_is_compiled_again_says_which_inputs_require_a_gradient(
    capfd: pytest.CaptureFixture[str],
) -> None:
    set_logs("all=off,specialize")
    lowered = lowered_copy(Net())
    lowered(X)
    lowered.linear.weight.requires_grad_(False)
    lowered(X)
    (said,) = lines(capfd)
    assert said.startswith("[specialize] a region is compiled again: these inputs require no gradient any more: ")
    assert "weight" in said


def test_a_region_that_is_planned_for_larger_inputs_says_which(capfd: pytest.CaptureFixture[str]) -> None:
    set_logs("all=off,specialize")
    lowered = lowered_copy(Net(), "budget", memory_budget=1.0)
    lowered(X)
    lowered(torch.randn(16, 8))
    (said,) = lines(capfd)
    assert said == "[specialize] a region is compiled again: larger inputs: x [16, 8] instead of [4, 8]"


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("plan", "[plan] a region keeps "),
        ("breaks", "[breaks] forward (budget memory_budget="),
        ("rules", "[rules] forward: operators without a rule, on tape: none"),
        ("profile", "[profile] a region of "),
    ],
)
def test_a_topic_has_its_lines_and_no_others(topic: str, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    set_logs("all=off", **{topic: "info"})
    lowered_copy(Net(), "budget", memory_budget=1.0)(X).backward()
    said = lines(capfd)
    assert any(line.startswith(text) for line in said), said
    assert all(line.startswith(f"[{topic}] ") for line in said)


def test_verbose_plans_list_values(capfd: pytest.CaptureFixture[str]) -> None:
    set_logs("all=off,+plan")
    lowered_copy(Net(), "all")(X).backward()
    assert any(line.startswith("[plan] kept:") for line in lines(capfd))


def test_paths_of_calls_are_a_topic(capfd: pytest.CaptureFixture[str]) -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: Tensor, count: int) -> Tensor:
            for _ in range(count):
                x = torch.tanh(self.linear(x))
            return x.sum()

    set_logs("all=off", paths=True, specialize=True)
    lowered = lowered_copy(Loop())
    lowered(X, 2)
    assert [line.partition(":")[0] for line in lines(capfd)] == ["[paths] the path of a call was recorded"]
    lowered(X, 3)
    said = lines(capfd)
    assert said[0] == (
        "[specialize] forward is compiled again (for the 2. time): "
        "sizes, numbers or attributes answer an if or a loop differently"
    )


def test_the_log_is_silent_by_default(capfd: pytest.CaptureFixture[str]) -> None:
    lowered = lowered_copy(Net(), "budget", memory_budget=1.0)
    lowered(X)
    lowered.eval()
    lowered(X)
    assert lines(capfd) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: set_logs(plam="debug"),
            'set_logs: log topic "plam" is unknown; there are plan, breaks, .*did you mean "plan"',
        ),
        (lambda: set_logs("+plam"), 'set_logs: log topic "plam" is unknown'),
        (lambda: set_logs(plan="loud"), 'set_logs: log topic "plan": level "loud" is unknown; there are debug, info'),
    ],
)
def test_an_unknown_topic_or_level_is_one_line(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)


def test_a_level_that_is_no_text_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="set_logs: plan: a level is one of debug, info"):
        set_logs(plan=3)  # type: ignore[arg-type]
