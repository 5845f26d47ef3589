"""A mistake of the user raises one line that names it, wherever it is noticed."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, saved_and_loaded, scripted_copy, to_backend
from support.nets import ConvNet, Residual


def line_of(call: Callable[[], Any]) -> str:
    """Returns the message of a call that fails, which is one line without a traceback of TorchScript."""
    with pytest.raises((RuntimeError, ValueError)) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("aten_recompute: ")
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    return str(raised.value)


class Broken(nn.Module):
    """Has two regions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.layer(x))
        print("between")
        return torch.tanh(self.layer(h))


def rows(requires_grad: bool = False) -> Tensor:
    return torch.rand(64, 16, requires_grad=requires_grad)


WAYS = ["called", "loaded", "inside", "to_backend"]


def make(net: nn.Module, way: str, options: str) -> Callable[..., Any]:
    """Returns a lowered module that is called from Python or from TorchScript."""
    scripted = scripted_copy(net)
    if way == "to_backend":
        return to_backend(scripted, options)
    lowered = aten_recompute.lower(scripted, options)
    if way == "loaded":
        return saved_and_loaded(lowered)
    return torch.jit.script(nn.Sequential(lowered, nn.Tanh())) if way == "inside" else lowered


@pytest.mark.parametrize("way", WAYS)
def test_a_budget_that_cannot_be_kept_raises_one_line(way: str) -> None:
    options = '{"strategy": "budget", "memory_budget": 1000, "cost_model": "flops"}'
    module = make(Residual(), way, options)
    x = rows()
    for _ in range(2):
        line = line_of(lambda: module(x))
        assert "memory_budget: the peak cannot be kept under 1000 bytes; the smallest that can be reached is" in line
    with torch.no_grad():
        module(x)


def test_a_budget_that_several_regions_cannot_keep_raises_one_line() -> None:
    lowered = lowered_copy(Broken(), "budget", memory_budget=1e-6, cost_model="flops")
    assert "memory_budget: the peak cannot be kept under 0 bytes" in line_of(lambda: lowered(rows()))


def test_a_message_prints_different_sizes_differently() -> None:
    lowered = lowered_copy(Residual(), "budget", memory_budget=1000, cost_model="flops")
    x = rows()
    smallest = re.search(r"reached is ([\d.]+) KiB", line_of(lambda: lowered(x)))
    assert smallest is not None
    # The limit is a few bytes below what can be reached, and no multiple of a tenth of a KiB.
    limit = int(float(smallest.group(1)) * 1024) - 60
    near = lowered_copy(Residual(), "budget", memory_budget=limit, cost_model="flops")
    sizes = re.search(r"under ([\d.]+ \w+); .* reached is ([\d.]+ \w+)", line_of(lambda: near(x)))
    assert sizes is not None
    assert sizes.group(1) != sizes.group(2)


def test_budgets_that_exclude_each_other_raise_one_line() -> None:
    net = ConvNet()
    x = torch.rand(4, 3, 8, 8)
    refusal = line_of(lambda: lowered_copy(net, "budget", memory_budget=1000, cost_model="flops")(x))
    match = re.search(r"\(([\d.]+) of", refusal)
    assert match is not None
    share = float(match.group(1)) * 1.01
    lowered = lowered_copy(net, "budget", memory_budget=share, time_budget=1.0, cost_model="flops")
    assert "no plan keeps both" in line_of(lambda: lowered(x))


@pytest.mark.parametrize("way", WAYS)
def test_a_plan_for_another_model_raises_one_line(way: str, tmp_path: Path) -> None:
    planned = lowered_copy(Residual(), "all", profile=True)
    planned(rows())
    aten_recompute.save_plan(planned, tmp_path / "plan.json")
    module = make(nn.Sequential(nn.Linear(16, 16), nn.Tanh()), way, f'{{"plan": "{tmp_path / "plan.json"}"}}')
    x = rows()
    assert "plan: made for another model, or by another version" in line_of(lambda: module(x))


@pytest.mark.parametrize("way", ["called", "loaded"])
def test_fullgraph_raises_one_line(way: str) -> None:
    module = make(Broken(), way, '{"strategy": "all", "fullgraph": true}')
    line = line_of(lambda: module(rows()))
    assert "fullgraph: forward has 2 regions instead of one; breaks: prim::Print" in line


def test_a_layer_pattern_that_matches_nothing_raises_one_line() -> None:
    lowered = lowered_copy(Residual(), "layers", pattern="towers")
    assert 'layer_pattern "towers" matches no module path' in line_of(lambda: lowered(rows()))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"aten_recompute/1", b"aten_recompute/9", r"newer aten_recompute \(format 9, .* update the library"),
        (b'"segments"', b'"segmentz"', 'invalid spec: key "strategy": got "segmentz", accepted is one of'),
    ],
    ids=["format", "strategy"],
)
@pytest.mark.parametrize("from_memory", [False, True], ids=["file", "buffer"])
def test_a_file_that_cannot_be_read_raises_one_line(
    old: bytes, new: bytes, message: str, from_memory: bool, tmp_path: Path
) -> None:
    lowered_copy(Residual(), "segments").save(str(tmp_path / "net.pt"))
    with zipfile.ZipFile(tmp_path / "net.pt") as before, zipfile.ZipFile(tmp_path / "new.pt", "w") as after:
        for item in before.infolist():
            after.writestr(item.filename, before.read(item).replace(old, new))

    def load() -> None:
        if from_memory:
            with open(tmp_path / "new.pt", "rb") as file:
                torch.jit.load(file)
        else:
            torch.jit.load(str(tmp_path / "new.pt"))

    assert re.search(message, line_of(load))


def test_other_errors_are_those_of_torchscript() -> None:
    """They have the source line of the original module."""
    lowered = lowered_copy(Residual())
    with pytest.raises(RuntimeError, match=r"linear\.py(.|\n)*mat1 and mat2 shapes cannot be multiplied"):
        lowered(torch.rand(2, 3))

    def fail(x: Tensor) -> Tensor:
        if x.dim() == 1:
            raise ValueError("no rows")
        return x

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return fail(x)

    with pytest.raises(torch.jit.Error, match="no rows"):
        torch.jit.script(Fails())(torch.rand(2))


# ---- words that match nothing ----


def warnings_of(lowered: torch.jit.ScriptModule, capfd: pytest.CaptureFixture[str]) -> list[str]:
    capfd.readouterr()
    for _ in range(2):
        lowered(rows())
    lowered.eval()(rows())
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("strategy", "options", "unmatched", "there"),
    [
        ("names", {"keywords": ["rleu", "gelu"]}, "rleu;", "gelu_"),
        ("names", {"keywords": ["%softmax"]}, "%softmax;", "gelu_"),
        ("ops", {"ops": ["aten::rleu", "gelu"]}, "rleu;", "gelu"),
        ("ops", {"ops": ["soft", "max"]}, "max, soft;", "gelu"),
    ],
)
def test_words_that_match_nothing_are_warned_about(
    strategy: str, options: dict[str, Any], unmatched: str, there: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (line,) = warnings_of(lowered_copy(Residual(), strategy, **options), capfd)
    assert "warning" in line.lower()
    assert strategy in line
    words, _, names = line.partition("; there are: ")
    assert f"matches {unmatched}" in words + ";"
    assert there in names


@pytest.mark.parametrize(
    ("strategy", "options"), [("names", {"keywords": ["gelu"]}), ("ops", {"ops": ["gelu", "linear"]})]
)
def test_words_that_match_give_no_warning(
    strategy: str, options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert warnings_of(lowered_copy(Residual(), strategy, **options), capfd) == []


def test_a_word_that_matches_in_one_region_gives_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.layer(x))
            print("between")
            return torch.sigmoid(self.layer(h)).square()

    assert warnings_of(lowered_copy(Two(), "ops", ops=["sigmoid"]), capfd) == []


def test_calls_that_a_plan_file_does_not_cover_run_unplanned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Evaluation and frozen layers do not make another model. Such calls run unplanned, with one warning."""
    net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(64, 16)
    first = lowered_copy(net, "budget", memory_budget=0.9)
    first(x).square().sum().backward()
    path = tmp_path / "plan.json"
    aten_recompute.save_plan(first, path)

    lowered = lowered_copy(net, plan=str(path))
    for kind in ("training", "evaluation", "frozen", "training"):
        results = []
        for module in (net, lowered):
            module.train(kind != "evaluation")
            weight = dict(module.named_parameters())["3.weight"]
            weight.requires_grad_(kind != "frozen")
            parameters = [p for p in module.parameters() if p.requires_grad]
            torch.manual_seed(3)
            results.append(torch.autograd.grad(module(x).square().sum(), parameters))
            weight.requires_grad_(True)
        assert_same(list(results[1]), list(results[0]))
    assert capfd.readouterr().err.count("a call of another kind than those planned for") == 1

    other = lowered_copy(nn.Sequential(nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 4)), plan=str(path))
    with pytest.raises(RuntimeError, match="made for another model"):
        other(x).sum().backward()
