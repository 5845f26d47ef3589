"""``aten-recompute bench`` measures TorchScript's own step beside the lowered one."""

import os
import re
import signal
import statistics
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from support.command_runs import INPUT, WIDTH, Command
from support.terminals import Shell

LARGE = f"float32[32768,{WIDTH}]"  # tensors of 8 MiB, which the C library takes from the system one by one


def children_of(pid: int) -> list[int]:
    """Returns the processes that a process has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_the_lowered_step_has_the_peak_that_plan_predicts(command: Command, model: str) -> None:
    settings = ("--input", LARGE, "--budget", "0.6", "--set", "cost_model=flops")
    result = command("bench", model, *settings, "--runs", "5", "--json")
    assert (result.status, result.error) == (0, "")
    stock, lowered = result.json["torchscript"], result.json["lowered"]
    (plan,) = command("plan", model, *settings, "--json").json["budgets"]
    assert lowered["peak_bytes"] == pytest.approx(plan["predicted_peak_bytes"], rel=0.02)
    assert lowered["peak_bytes"] < 0.75 * stock["peak_bytes"]
    # Tensors of the lowered step lie in one arena; TorchScript's allocator keeps more than is alive.
    assert lowered["resident_bytes"] == pytest.approx(lowered["peak_bytes"], rel=0.1)
    assert lowered["resident_bytes"] < stock["resident_bytes"]
    for side in (stock, lowered):
        assert side["resident_bytes"] > 0.9 * side["peak_bytes"]
        assert len(side["all_seconds"]) == result.json["runs"] == 5
        assert side["seconds"] == pytest.approx(statistics.median(side["all_seconds"]))
        assert min(side["all_seconds"]) > 0
    assert result.json["options"] == {"strategy": "budget", "memory_budget": 0.6, "cost_model": "flops"}


def test_the_peak_of_torchscript_is_the_one_of_python(command: Command, model: str) -> None:
    from torch.profiler import ProfilerActivity, profile

    module, x = torch.jit.load(model), torch.randn(1024, WIDTH)
    for _ in range(4):
        module(x).backward()
        module.zero_grad()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        module(x).backward()
    events = [each for each in recorded.profiler.kineto_results.events() if each.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    result = command("bench", model, "--input", INPUT, "--budget", "0.8", "--runs", "1", "--json")
    assert result.json["torchscript"]["peak_bytes"] == pytest.approx(peak, rel=0.02)


def test_a_lowered_file_brings_its_options(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--budget", "0.7")
    result = command("bench", "out.pt", "--input", INPUT, "--runs", "2", "--json")
    assert (result.status, result.error) == (0, "")
    assert result.json["options"]["memory_budget"] == 0.7
    assert result.json["lowered"]["peak_bytes"] < result.json["torchscript"]["peak_bytes"]


def test_gradients_that_are_kept_are_no_part_of_the_peak(command: Command, model: str) -> None:
    def lowered_peak(*settings: str) -> int:
        arguments = ("--input", "float32[8,64]", "--strategy", "all", "--runs", "1", "--json", *settings)
        return int(command("bench", model, *arguments).json["lowered"]["peak_bytes"])

    gradients = sum(each.nbytes for each in torch.jit.load(model).parameters())
    assert lowered_peak() > gradients > lowered_peak("--set", "accumulate=true")


def test_the_text_says_how_many_runs_there_were(command: Command, model: str) -> None:
    result = command("bench", model, "--input", INPUT, "--strategy", "all", "--runs", "3")
    assert (result.status, result.error) == (0, "")
    assert "medians of 3 steps of each, in turns" in result.out
    rows = [line.split("  ")[0] for line in result.out.splitlines()[2:5]]
    assert rows == ["step", "TorchScript", "lowered"]
    assert result.out.splitlines()[3].count(" 1.00") == 3


def test_a_terminal_shows_a_bar(binary: Path, model: str, tmp_path: Path) -> None:
    arguments = [str(binary), "bench", model, "--input", LARGE, "--budget", "0.6"]
    arguments += ["--runs", "10000"]
    with closing(Shell(arguments, tmp_path, {})) as shell:
        before = shell.read_until("lowered 2/10000", seconds=300)
        assert re.search(r"aten_recompute: bench \[-+\] +\d+ %  lowered 1/10000", before)
    with closing(Shell(arguments, tmp_path, {"RECOMPUTE_PROGRESS": "0"})) as quiet:
        while len(children_of(quiet.process.pid)) < 2:
            assert quiet.process.poll() is None
            time.sleep(0.05)
        time.sleep(4)  # the bar is shown after one second
        assert quiet.read_now() == ""


@pytest.mark.parametrize(
    ("status", "arguments", "part"),
    [
        (2, ["--input", INPUT], "is not lowered, so --strategy or --budget is required"),
        (2, ["--input", INPUT, "--budget", "0.5", "--runs", "0"], "--runs"),
        (2, ["--input", INPUT, "--strategy", "magic"], '"magic"'),
        (2, ["--input", "3", "--budget", "0.5"], "Expected a value of type 'Tensor'"),
        (2, ["--input", INPUT, "--budget", "2x"], '--budget: got "2x"'),
        (5, ["--input", INPUT, "--budget", "1KiB"], "cannot be kept under 1.0 KiB"),
        (6, ["--input", "float32[8,63]", "--budget", "0.5"], "mat1 and mat2 shapes cannot be multiplied"),
    ],
)
def test_what_is_wrong_is_one_line(command: Command, model: str, status: int, arguments: list[str], part: str) -> None:
    command("bench", model, *arguments).fails(status, part)


def test_options_of_a_lowered_file_are_not_changed(command: Command, model: str) -> None:
    command("lower", model, "out.pt", "--budget", "0.7")
    command("bench", "out.pt", "--input", INPUT, "--set", "accumulate=true").fails(2, "--set: needs --strategy")


class Deadly(nn.Module):
    """Ends its process as the system does where memory runs out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight * torch.zeros([1 << 50])).sum() * x.sum()


def test_memory_that_runs_out_is_one_line(command: Command, tmp_path: Path) -> None:
    torch.jit.script(Deadly()).save(str(tmp_path / "deadly.pt"))
    command("bench", "deadly.pt", "--input", "float32[2]", "--strategy", "all").fails(6, "allocate")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_processes_that_measure(binary: Path, model: str, number: int) -> None:
    arguments = ["bench", model, "--input", LARGE, "--budget", "0.6", "--runs", "10000"]
    process = subprocess.Popen(
        [binary, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell lets what it runs in the background ignore SIGINT, and what that starts does so, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 60
        children: list[int] = []
        while len(children) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
            children = children_of(process.pid)
        assert len(children) == 2
        time.sleep(0.5)
        process.send_signal(number)
        assert process.wait(timeout=60) == -number
        deadline = time.monotonic() + 60
        while any(map(is_alive, children)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_alive, children))
    finally:
        process.kill()


def test_a_process_that_is_killed_is_one_line(binary: Path, model: str) -> None:
    arguments = ["bench", model, "--input", LARGE, "--budget", "0.6", "--runs", "10000"]
    process = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while len(children_of(process.pid)) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.5)
    os.kill(children_of(process.pid)[1], signal.SIGKILL)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (6, "")
    assert error == "aten-recompute: the process of the lowered step was killed, perhaps because memory ran out\n"
