"""``aten-recompute inspect`` lists what is in a file."""

import io
import zipfile
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from support.command_runs import INPUT, WIDTH, Command


class Broken(nn.Module):
    """Prints in the middle, which no region contains."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.a(x))
        print(x.size(0))
        return torch.tanh(self.b(x)).sum()


def test_parameters_modules_and_methods_are_listed(command: Command, model: str) -> None:
    result = command("inspect", model, "--json", "--depth", "3")
    assert (result.status, result.error) == (0, "")
    module = torch.jit.load(model)
    count = sum(parameter.numel() for parameter in module.parameters())
    assert result.json["parameters"] == {
        "tensors": len(list(module.parameters())),
        "elements": count,
        "bytes": 4 * count,
        "trainable": count,
    }
    assert [each["path"] for each in result.json["modules"]] == [
        name for name, _ in module.named_modules() if 0 <= name.count(".") < 3 and name
    ]
    assert result.json["methods"] == [{"name": "forward", "signature": "forward(x: Tensor) -> Tensor"}]
    assert result.json["training"] is True
    assert "regions" not in result.json


def test_regions_and_breaks_need_inputs(command: Command, model: str, tmp_path: Path) -> None:
    result = command("inspect", model, "--input", INPUT, "--json")
    assert (result.json["regions"], result.json["breaks"]) == (1, [])
    torch.jit.script(Broken()).save(str(tmp_path / "broken.pt"))
    broken = command("inspect", "broken.pt", "--input", "float32[8,16]", "--json")
    assert (broken.status, broken.error) == (0, "8\n")  # what it prints
    assert broken.json["regions"] > 1
    assert broken.json["breaks"]
    text = command("inspect", "broken.pt", "--input", "float32[8,16]").out
    assert f"regions: {broken.json['regions']}\n" in text
    assert text.count("break: ") == len(broken.json["breaks"])


def test_a_lowered_file_says_how(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--budget", "0.5")
    (method,) = command("inspect", "out.pt", "--json").json["methods"]
    assert method["lowered"]["memory_budget"] == 0.5
    assert '"memory_budget":0.5' in command("inspect", "out.pt").out


def test_the_text_names_classes_and_sizes(command: Command, model: str) -> None:
    text = command("inspect", model).out
    assert "method: forward(x: Tensor) -> Tensor" in text
    assert "saved in training mode" in text
    assert f" {WIDTH * WIDTH + WIDTH} " in next(line for line in text.splitlines() if line.startswith("net.stem"))


@pytest.mark.parametrize("record", ["version", "/data.pkl", "/constants.pkl"])
def test_a_file_that_becomes_huge_in_memory_is_refused(
    command: Command, model: str, tmp_path: Path, record: str
) -> None:
    changed = io.BytesIO()
    with zipfile.ZipFile(model) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, b"0" * (200 << 20) if name.endswith(record) else old.read(name))
    (tmp_path / "bomb.pt").write_bytes(changed.getvalue())
    command("inspect", "bomb.pt").fails(3, "bomb.pt", "that would become")


@pytest.mark.parametrize("record", ["/data.pkl", "/constants.pkl", ".debug_pkl"])
def test_a_length_that_is_greater_than_its_record_is_refused(
    command: Command, model: str, tmp_path: Path, record: str
) -> None:
    """LibTorch would make room for a string of 1 GiB, or for as many objects, before it reads on."""
    for operation in (b"X", b"r"):
        path = tmp_path / "damaged.pt"
        with zipfile.ZipFile(model) as old, zipfile.ZipFile(path, "w") as new:
            changed = next(name for name in old.namelist() if name.endswith(record))
            for name in old.namelist():
                content = old.read(name)
                assert name != changed or content.startswith(b"\x80\x02")
                new.writestr(name, b"\x80\x02)" + operation + b"\0\0\0\x40" if name == changed else content)
        command("inspect", path.name).fails(3, path.name, f"record {changed.partition('/')[2]} is damaged")


def test_a_device_is_no_file(command: Command, model: str) -> None:
    command("inspect", "/dev/zero").fails(3, "/dev/zero", "a device or a pipe")
    command("estimate", model, "--input", "/dev/zero", "--budget", "0.5").fails(3, "a device or a pipe")


def test_a_plan_that_is_a_device_is_refused(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--strategy", "plan", "--set", "plan=/dev/zero").fails(3, "a device or a pipe")


def test_a_method_that_is_missing_is_told_without_inputs(command: Command, model: str) -> None:
    command("inspect", model, "--method", "walk").fails(2, 'no method "walk"; it has forward')
    assert command("inspect", model, "--method", "forward").status == 0
