"""The resident memory of whole processes, as benchmarks/resident.py measures it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.resident import REPOSITORY, first_step_limit, in_own_process

pytestmark = pytest.mark.skipif(os.environ.get("RECOMPUTE_ARENA") == "off", reason="arenas are switched off")


def measure(model: str, budget: str, what: str, arena: str = "keep") -> dict[str, float]:
    return in_own_process(["--models", model, "--arena", arena, "--steps", "2", "--one", budget, what])


def run_python(program: str, folder: Path) -> str:
    """Runs the program, as a file in this folder, in a process of its own and returns what it prints."""
    file = folder / "program.py"  # torch.jit.script reads it
    file.write_text(program)
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "python")])
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, str(file)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


@pytest.mark.parametrize(("model", "budget"), [("gpt", "0.25"), ("transformer", "0.5")])
def test_the_process_takes_what_the_plan_predicts(model: str, budget: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As users run it: without the settings of the tests.
    monkeypatch.delenv("RECOMPUTE_ARENA_MIN_BYTES", raising=False)
    monkeypatch.delenv("RECOMPUTE_ARENA_POISON", raising=False)
    rest = measure(model, budget, "rest")["rest"]
    kept = measure(model, budget, "peak")
    assert kept["peak"] - rest <= 1.05 * kept["predicted"]
    assert kept["faults"] < 100
    # The profile's memory is gone before the first step begins; the search and libraries that load take some.
    assert kept["first"] - rest <= first_step_limit(kept["predicted"])
    released = measure(model, budget, "peak", "release")
    assert released["peak"] - rest <= 1.05 * released["predicted"]
    assert released["after"] <= 1.05 * rest


TRAINS_UNDER_A_LIMIT = """
import gc, resource, warnings
import torch, aten_recompute
from benchmarks import models
from benchmarks.resident import status

warnings.filterwarnings("ignore", ".*torch.jit.* is deprecated")
budget = 80 << 20
workload = models.make("gpt")
for parameter in workload.module.parameters():
    parameter.grad = torch.zeros_like(parameter)
lowered = aten_recompute.lower(torch.jit.script(workload.module), "budget", memory_budget=budget, accumulate=True)
gc.collect()
limit = status("VmData") + int(1.15 * budget) + (64 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
for _ in range(3):
    workload.loss(lowered).backward()
print("trained")
"""


def test_training_under_a_hard_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOMPUTE_ARENA_MIN_BYTES", raising=False)
    monkeypatch.delenv("RECOMPUTE_ARENA_POISON", raising=False)
    assert run_python(TRAINS_UNDER_A_LIMIT, tmp_path) == "trained\n"


RUNS_OUT_OF_MEMORY = """
import resource, warnings
import torch, aten_recompute
from torch import nn
from benchmarks.resident import status

warnings.filterwarnings("ignore", ".*torch.jit.* is deprecated")


class Net(nn.Module):
    def __init__(self, selects: bool):
        super().__init__()
        self.selects = selects
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(6)])

    def forward(self, x):
        if self.selects:
            x = x[x[:, 0] > -1e9]
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.square().mean()


for selects in (False, True):
    net = Net(selects)
    lowered = aten_recompute.lower(torch.jit.script(net), "budget", memory_budget=0.7, unreachable="leanest")
    x = torch.randn(200_000, 64)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (status("VmData") + (20 << 20), hard))
    for _ in range(2):
        try:
            lowered(x)
        except RuntimeError as error:
            print("can't allocate memory" in str(error))
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    lowered(x).backward()
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    net.zero_grad()
    net(x).backward()
    print(all(torch.equal(a, parameter.grad) for a, parameter in zip(gradients, net.parameters())))
    (variant,) = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"][0]["variants"]
    print(len(variant["recomputed"]) > 0 and variant["predicted_peak_bytes"] > 0)
"""


def test_memory_that_runs_out_in_the_profile_is_an_error_that_leaves_nothing_behind(tmp_path: Path) -> None:
    """With enough memory, the next call is planned as if nothing had happened."""
    assert run_python(RUNS_OUT_OF_MEMORY, tmp_path) == "True\n" * 8
