"""Strategy ``min_cut``: gradients, bans, tags and options."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aten_recompute
from aten_recompute._report_types import Variant
from benchmarks import models
from support.helpers import assert_same, lowered_copy, num_regions, step
from support.nets import ConvNet, Residual, Tied, TwoOutputs

OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "aggressive": {"aggressive_recomputation": True},
    "random": {"aggressive_recomputation": True, "recompute_random": True},
    "everything": {
        "aggressive_recomputation": True,
        "recompute_random": True,
        "recompute_views": True,
        "ban_if_reduction": False,
        "compute_intensive_ops": [],
    },
}


def variant(lowered: torch.jit.ScriptModule) -> Variant:
    report = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]
    return report["regions"][0]["variants"][0]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("name", ["gpt", "resnet50", "mlp", "transformer"])
def test_gradients_of_benchmark_models_equal_eager(name: str, options: dict[str, Any]) -> None:
    workload = models.make(name, size="small")
    eager = workload.module
    lowered = lowered_copy(eager, "min_cut", **options)
    for seed in (1, 2):
        torch.manual_seed(seed)
        eager_loss = workload.step(eager)
        eager_random = torch.get_rng_state()
        torch.manual_seed(seed)
        assert torch.equal(workload.step(lowered), eager_loss)
        assert torch.equal(torch.get_rng_state(), eager_random)
        assert_same([p.grad for p in lowered.parameters()], [p.grad for p in eager.parameters()])
        assert_same(list(lowered.buffers()), list(eager.buffers()))
    assert num_regions(lowered) == [1]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize(
    ("net", "inputs"),
    [
        (Residual(dropout=0.3), (torch.rand(5, 16),)),
        (ConvNet(), (torch.rand(4, 3, 8, 8),)),
        (Tied(), (torch.randint(11, (3, 5)),)),
        (TwoOutputs(), (torch.rand(4, 6),)),
    ],
    ids=["residual", "convnet", "tied", "two_outputs"],
)
def test_gradients_of_small_nets_equal_eager(
    net: nn.Module, inputs: tuple[torch.Tensor, ...], options: dict[str, Any]
) -> None:
    eager = copy.deepcopy(net)
    lowered = lowered_copy(net, "min_cut", **options)
    for seed in (1, 2):
        expected = step(eager, list(eager.parameters()), inputs, seed)
        result = step(lowered, list(lowered.parameters()), inputs, seed)
        assert_same(result[0] + result[1], expected[0] + expected[1])


def test_aggressive_recomputation_saves_less() -> None:
    workload = models.make("gpt", size="small")
    saved: list[int] = []
    for options in (OPTIONS["default"], OPTIONS["aggressive"]):
        lowered = lowered_copy(workload.module, "min_cut", **options)
        workload.step(lowered)
        saved.append(variant(lowered)["predicted_saved_bytes"])
    assert saved[1] < 0.7 * saved[0]


def test_the_report_has_banned_operators_with_reasons() -> None:
    net = Residual(dropout=0.3)
    lowered = lowered_copy(net, "min_cut")
    lowered(torch.rand(5, 16)).sum().backward()
    banned = variant(lowered)["banned"]
    assert all(set(each) == {"value", "reason"} for each in banned)
    reasons = {each["reason"] for each in banned}
    assert "random (recompute_random)" in reasons
    assert "not among recomputable_ops (ban_if_not_in_allowlist)" in reasons
    linears = [each for each in banned if each["value"].startswith("linear")]
    assert linears
    assert all("recomputable_ops" in each["reason"] for each in linears)

    other = lowered_copy(net, "segments")
    other(torch.rand(5, 16)).sum().backward()
    assert variant(other)["banned"] == []


def test_the_log_has_one_line_about_bans(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = (
        "import torch, aten_recompute\n"
        "net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())\n"
        "aten_recompute.lower(torch.jit.script(net), 'min_cut')(torch.rand(2, 4)).sum().backward()\n"
    )
    monkeypatch.setenv("RECOMPUTE_LOG_LEVEL", "INFO")
    monkeypatch.setenv("RECOMPUTE_LOG_FILE", str(log))
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
    lines = [line for line in log.read_text().splitlines() if "banned from running again" in line]
    assert len(lines) == 1
    assert "min_cut: " in lines[0]
    assert "saved" in lines[0]


# ---- tags ----


class Tagged(nn.Module):
    """By default, min_cut saves the result of relu, and not that of linear."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.b = nn.Linear(8, 8)
        self.tag = tag

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.a(x))
        if self.tag == "must_save":
            h = torch.ops.aten_recompute.must_save(h)
        elif self.tag == "must_recompute":
            h = torch.ops.aten_recompute.must_recompute(h)
        elif self.tag == "prefer_save":
            h = torch.ops.aten_recompute.prefer_save(h)
        elif self.tag == "prefer_recompute":
            h = torch.ops.aten_recompute.prefer_recompute(h)
        return torch.tanh(self.b(h))


@pytest.mark.parametrize(
    ("tag", "options", "recomputed"),
    [
        ("", {}, False),
        ("must_recompute", {}, True),
        ("prefer_recompute", {}, True),
        ("", OPTIONS["everything"], True),
        ("must_save", OPTIONS["everything"], False),
        ("prefer_save", {"ban_if_materialized_backward": False}, False),
        ("prefer_save", OPTIONS["everything"], True),
    ],
)
def test_tags_are_obeyed(tag: str, options: dict[str, Any], recomputed: bool) -> None:
    net = Tagged(tag)
    lowered = lowered_copy(net, "min_cut", **options)
    x = torch.rand(16, 8)
    assert_same(step(lowered, list(lowered.parameters()), (x,))[1], step(net, list(net.parameters()), (x,))[1])
    names = variant(lowered)["recomputed"]
    assert any(name.startswith("relu") for name in names) == recomputed
    assert num_regions(lowered) == [1]


@pytest.mark.parametrize("tag", ["must_save", "must_recompute", "prefer_save", "prefer_recompute"])
@pytest.mark.parametrize("strategy", ["none", "all", "segments"])
def test_other_strategies_ignore_tags(tag: str, strategy: str) -> None:
    x = torch.rand(3, 8, requires_grad=True)
    tagged = getattr(aten_recompute, tag)(x)
    assert torch.equal(tagged, x)
    (3 * tagged).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full_like(x, 3))

    net = Tagged(tag)
    lowered = lowered_copy(net, strategy)
    inputs = (torch.rand(3, 8),)
    assert_same(
        step(lowered, list(lowered.parameters()), inputs)[1],
        step(net, list(net.parameters()), inputs)[1],
    )


def test_contradicting_tags_raise() -> None:
    class Both(Tagged):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.ops.aten_recompute.must_save(torch.relu(self.a(x)))
            return torch.tanh(self.b(torch.ops.aten_recompute.must_recompute(h)))

    lowered = lowered_copy(Both(""), "min_cut")
    with pytest.raises(RuntimeError, match="is tagged must_save and must_recompute"):
        lowered(torch.rand(3, 8))


# ---- options ----


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"ban_if_reduction": "maybe"}, 'key "ban_if_reduction": got "maybe", accepted is true or false'),
        ({"max_dist_from_bw": -1}, 'key "max_dist_from_bw": got -1, accepted is an integer >= 0'),
        ({"distance_weight": 0}, 'key "distance_weight": got 0, accepted is a number in'),
        ({"recomputable_ops": [1]}, r'key "recomputable_ops": got \[1\], accepted is a list'),
        ({"memory_budget": 0.5}, 'key "memory_budget" does not belong to strategy "min_cut"'),
    ],
)
def test_an_invalid_option_raises(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        lowered_copy(Residual(), "min_cut", **option)


def test_the_report_has_the_options() -> None:
    lowered = lowered_copy(Residual(), "min_cut", recomputable_ops=["aten::gelu"], max_fusible_depth=5)
    assert aten_recompute.report(lowered)["methods"][0]["options"] == {
        "strategy": "min_cut",
        "recomputable_ops": ["gelu"],
        "max_fusible_depth": 5,
    }
