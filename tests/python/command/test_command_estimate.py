"""``aten-recompute estimate`` says what Python's ``estimate`` says, and allocates nothing."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aten_recompute
from support.command_runs import INPUT, WIDTH, Command, Large

KEYS = ("unplanned_peak_bytes", "unplanned_saved_bytes", "smallest_peak_bytes", "smallest", "budgets", "regions")


def test_the_figures_are_those_of_python(command: Command, model: str) -> None:
    result = command("estimate", model, "--input", INPUT, "--budget", "0.9,5MiB", "--budget", "90%", "--json")
    assert (result.status, result.error) == (0, "")
    module = torch.jit.load(model)
    expected = aten_recompute.estimate(module, torch.zeros(1024, WIDTH), ["0.9", "5MiB", "90%"])
    assert {key: result.json[key] for key in KEYS} == {key: expected[key] for key in KEYS}  # type: ignore[literal-required]
    assert result.json["smallest_peak_bytes"] < result.json["unplanned_peak_bytes"]


def test_the_text_has_a_row_for_each_budget(command: Command, model: str) -> None:
    result = command("estimate", model, "--input", INPUT, "--budget", "0.9,80%")
    assert (result.status, result.error) == (0, "")
    lines = result.out.splitlines()
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "plan",
        "no recomputation",
        "budget 0.9",
        "budget 80%",
        "smallest peak",
    ]
    assert "\x1b" not in result.out


def test_options_of_the_budget_change_the_peak(command: Command, model: str) -> None:
    plain, accumulating = (
        command("estimate", "--json", "--input", INPUT, *settings, model).json["smallest_peak_bytes"]
        for settings in ((), ("--set", "accumulate=true"))
    )
    assert plain != accumulating


def test_an_unreachable_budget_ends_with_status_5_after_the_table(command: Command, model: str) -> None:
    result = command("estimate", model, "--input", INPUT, "--budget", "0.9,1KiB")
    result.fails(5, "budget 1KiB", "the smallest peak is ")
    assert "unreachable" in result.out


def test_nothing_of_the_size_of_the_step_is_allocated(command: Command, tmp_path: Path) -> None:
    """The parameters take 256 MiB and the step takes 16 GiB, in a process that may have 2 GiB more than it needs."""
    torch.jit.script(Large()).save(str(tmp_path / "large.pt"))
    result = command("estimate", "large.pt", "--input", "float32[131072,2048]", "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["unplanned_peak_bytes"] > 16 << 30


def test_inputs_come_from_files(command: Command, model: str, tmp_path: Path) -> None:
    x = torch.zeros(1024, WIDTH)
    torch.save(x, tmp_path / "x.pt")
    torch.save((x,), tmp_path / "tuple.pt")
    results = [
        command("estimate", model, "--input", text, "--json").json["unplanned_peak_bytes"]
        for text in ("x.pt", "tuple.pt", INPUT)
    ]
    assert len(set(results)) == 1


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("float32[32,]", "sizes are whole numbers"),
        ("float32[-1,64]", "sizes are whole numbers"),
        ("float32[32,64]x", "nothing but : and a limit"),
        ("float33[32,64]", '"float33" is no type of tensors'),
        ("float32[32,64]:5", "only integers have a limit"),
        ("int64[32,64]:0", "a whole number above 0"),
        ("float32[99999999999,99999999999]", "more elements than can be counted"),
        ("missing.pt", "nor a file"),
        ("x" * 300, "nor a file"),
        ("3", "Expected a value of type 'Tensor'"),
    ],
)
def test_wrong_inputs_end_with_status_2(command: Command, model: str, text: str, part: str) -> None:
    command("estimate", model, "--input", text).fails(2, "--input", part)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--budget", "2x"], '--budget: got "2x"'),
        (["--set", "memory_budget=0.4"], "--set memory_budget: use --budget"),
        (["--set", "strategy=all"], "--set strategy: use --budget"),
        (["--set", "time_budget=1.1"], "--set time_budget: what it does is not known"),
        (["--set", "accumulate"], "--set accumulate: an option is name=value"),
        (["--budget", "0.9", "--set", "colour=red"], 'key "colour" is unknown'),
        (["--set", "accumulate=1", "--set", "accumulate=1"], "was given before"),
        (["--method", "walk"], 'no method "walk"; it has forward'),
        (["--device", "tpu"], "--device"),
        (["--input", INPUT], "2 values are too many for forward(x: Tensor)"),
        (["--colour"], "--colour"),
        (["stray"], "stray"),
    ],
)
def test_wrong_arguments_end_with_status_2(command: Command, model: str, arguments: list[str], part: str) -> None:
    command("estimate", model, "--input", INPUT, *arguments).fails(2, part)


def test_inputs_are_needed(command: Command, model: str) -> None:
    command("estimate", model).fails(2, "--input is required")


def test_inputs_of_the_wrong_size_end_with_status_6(command: Command, model: str) -> None:
    command("estimate", model, "--input", "float32[8,63]").fails(6, "mat1 and mat2 shapes cannot be multiplied")


def test_what_runs_instead_of_an_unreachable_budget_is_shown(command: Command, model: str) -> None:
    arguments = ("--input", INPUT, "--budget", "1KiB", "--set", "unreachable=leanest")
    result = command("estimate", model, *arguments)
    assert (result.status, result.error) == (0, "")
    assert "budget 1KiB (leanest)" in result.out
    estimate = command("estimate", model, *arguments, "--json").json
    assert estimate["budgets"][0]["reachable"] is False
    peak = estimate["budgets"][0]["peak_bytes"]
    assert estimate["smallest_peak_bytes"] <= peak < estimate["unplanned_peak_bytes"]


class Segmentation(nn.Module):
    """Operators whose kernels for meta tensors come with Python, in a method with a list and a loop."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.GroupNorm(2, 8)])
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.last = nn.Sequential(nn.InstanceNorm2d(8, affine=True), nn.Conv2d(8, 5, 1))

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for convolution, norm in zip(self.down, self.norms, strict=True):
            x = F.silu(norm(convolution(x)))
            skips.append(x)
            x = F.max_pool2d(x, 2)
        batch, channels, height, width = x.shape
        rows = x.view(batch, 1, channels, height * width).transpose(-1, -2)
        x = x + F.scaled_dot_product_attention(rows, rows, rows).transpose(-1, -2).reshape(x.shape)
        while len(skips) > 0:
            x = self.up(x) + skips.pop()
        return F.cross_entropy(self.last(x), target)


def test_operators_without_a_meta_kernel_outside_of_python_are_estimated(
    command: Command, tmp_path: Path, one_thread: None
) -> None:
    module = torch.jit.script(Segmentation())
    module.save(str(tmp_path / "segmentation.pt"))
    inputs = ("--input", "float32[2,3,32,32]", "--input", "int64[2,32,32]")
    result = command("estimate", "segmentation.pt", *inputs, "--json")
    assert (result.status, result.error) == (0, "")
    expected = aten_recompute.estimate(module, (torch.zeros(2, 3, 32, 32), torch.zeros(2, 32, 32).long()), [])
    assert result.json["regions"] == expected["regions"] == 1
    assert result.json["unplanned_peak_bytes"] == expected["unplanned_peak_bytes"]
    assert result.json["unplanned_saved_bytes"] == expected["unplanned_saved_bytes"]


OPERATORS = {
    "l1_loss": "F.l1_loss(y, x)",
    "huber_loss": "F.huber_loss(y, x)",
    "binary_cross_entropy": "F.binary_cross_entropy(y.sigmoid(), x.sigmoid())",
    "binary_cross_entropy_with_logits": "F.binary_cross_entropy_with_logits(y, x.sigmoid())",
    "normalize": "F.normalize(y, dim=1)",
    "hardswish": "F.hardswish(y)",
    "glu": "F.glu(y, 1)",
    "cumsum": "y.cumsum(2)",
    "adaptive_avg_pool2d": "F.adaptive_avg_pool2d(y, [5, 3])",
    "area": "F.interpolate(y, scale_factor=0.5, mode='area')",
    "reflect": "F.pad(y, [2, 1, 2, 1], mode='reflect')",
    "unfold": "F.fold(F.unfold(y, 3, padding=1), [16, 16], 3, padding=1)",
    "grid_sample": "F.grid_sample(y, F.affine_grid(torch.eye(2, 3).expand(2, 2, 3), [2, 4, 9, 7], False), "
    "align_corners=False)",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_single_operator_is_estimated_as_python_does(
    command: Command, tmp_path: Path, one_thread: None, name: str
) -> None:
    definition = (
        f"def forward(self, x: Tensor) -> Tensor:\n    y = x * self.weight\n    return ({OPERATORS[name]}).sum()\n"
    )
    net = type(f"Operator_{name}", (nn.Module,), {})()  # a class of its own, whose forward is defined once
    net.weight = nn.Parameter(torch.ones(1))
    module = torch.jit.script(net)
    module.define(definition)
    module.save(str(tmp_path / "operator.pt"))
    result = command("estimate", "operator.pt", "--input", "float32[2,4,16,16]", "--json")
    assert (result.status, result.error) == (0, "")
    expected = aten_recompute.estimate(module, (torch.zeros(2, 4, 16, 16),), [])
    assert result.json["unplanned_peak_bytes"] == pytest.approx(expected["unplanned_peak_bytes"], rel=0.05)


@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_layer_is_one_region(command: Command, tmp_path: Path, one_thread: None, training: bool) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).train(training)
    module = torch.jit.script(layer)
    module.save(str(tmp_path / "layer.pt"))
    result = command("estimate", "layer.pt", "--input", "float32[2,64,32]", "--json")
    assert (result.status, result.error) == (0, "")
    expected = aten_recompute.estimate(module, (torch.zeros(2, 64, 32),), [])
    assert result.json["regions"] == expected["regions"] == 1
    assert result.json["unplanned_peak_bytes"] == pytest.approx(expected["unplanned_peak_bytes"], rel=0.05)
