"""What released versions wrote is read by this one: modules, plans and problems, with eager PyTorch's gradients."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import aten_recompute
from support.helpers import assert_same, only_variant

FOLDER = Path(__file__).resolve().parents[2] / "formats"
VERSIONS = sorted(
    (path.name for path in FOLDER.iterdir() if path.is_dir() and path.name[0].isdigit()),
    key=lambda name: [int(part) for part in name.split(".")],
)
# Versions whose plans are of other graphs of operators than those of today: a plan is followed exactly, or refused.
WITH_OTHER_GRAPHS = {"0.1"}
FOLLOWED = [version for version in VERSIONS if version not in WITH_OTHER_GRAPHS]
sys.path.insert(0, str(FOLDER.parent))

from formats.network import Network, inputs  # noqa: E402  (the path above leads to it)


def step(module: Any) -> tuple[torch.Tensor, list[torch.Tensor | None], list[torch.Tensor]]:
    """Returns the loss, the gradients, and the buffers after one step."""
    torch.manual_seed(3)
    loss = module(inputs())
    loss.backward()
    return loss.detach(), [parameter.grad for parameter in module.parameters()], list(module.buffers())


def assert_steps_as(module: Any, eager: Network) -> None:
    (loss, gradients, buffers), (expected_loss, expected_gradients, expected_buffers) = step(module), step(eager)
    assert_same([loss, *gradients, *buffers], [expected_loss, *expected_gradients, *expected_buffers])


def what_is_followed(plan: Any) -> list[Any]:
    """Returns the decisions of a plan, and the peak that they lead to."""
    return [
        [region.get(key) for key in ("region", "drop", "instead", "handed", "peak_bytes")] for region in plan["regions"]
    ]


def eager_like(module: torch.jit.ScriptModule) -> Network:
    eager = Network()
    eager.load_state_dict(module.state_dict())
    return eager


def test_this_version_has_files() -> None:
    major_minor = aten_recompute.__version__.rpartition(".")[0]
    assert VERSIONS[-1] == major_minor, "make the files of this version: tests/formats/README.md"


@pytest.mark.parametrize(
    ("version", "name"),
    [(version, name) for version in VERSIONS for name in ("all", "budget", "segments")]
    + [(version, "plan") for version in FOLLOWED],
)
def test_a_lowered_module_is_loaded_and_trains_as_eager(version: str, name: str) -> None:
    path = FOLDER / version / f"{name}.torchscript"
    for load in (torch.jit.load, aten_recompute.load):
        module = load(str(path))
        assert_steps_as(module, eager_like(module))
        assert only_variant(module)["recomputed"]


@pytest.mark.parametrize("version", sorted(WITH_OTHER_GRAPHS))
def test_a_plan_of_another_graph_is_refused_in_one_line(version: str) -> None:
    modules = [
        torch.jit.load(str(FOLDER / version / "plan.torchscript")),
        aten_recompute.lower(torch.jit.script(Network()), plan=str(FOLDER / version / "plan.json")),
    ]
    for module in modules:
        with pytest.raises(
            aten_recompute.PlanMismatchError, match=r"^[^\n]*made for another model, or by another version"
        ):
            module(inputs())


@pytest.mark.parametrize("version", FOLLOWED)
def test_a_plan_is_followed(version: str, tmp_path: Path) -> None:
    path = FOLDER / version / "plan.json"
    plan = json.loads(path.read_text())
    assert plan["format"] == "aten_recompute.plan/1"
    eager = Network()
    for given in (str(path), plan):
        scripted = torch.jit.script(Network())
        scripted.load_state_dict(eager.state_dict())
        lowered = aten_recompute.lower(scripted, plan=given)
        assert_steps_as(lowered, eager_like(scripted))
        aten_recompute.save_plan(lowered, tmp_path / "again.json")
        again = json.loads((tmp_path / "again.json").read_text())
        assert what_is_followed(again) == what_is_followed(plan)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_problem_is_planned(version: str) -> None:
    problem = json.loads((FOLDER / version / "problem.json").read_text())
    everything = aten_recompute.plan_problem(problem, 1 << 40)["peak_bytes"]
    assert aten_recompute.plan_problem(problem, int(0.8 * everything))["peak_bytes"] <= 0.8 * everything
