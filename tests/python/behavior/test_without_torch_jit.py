"""Loading, lowering, training and saving call none of Python's ``torch.jit`` entry points.

A change that was proposed for PyTorch (number 189705) makes errors of these, unless an environment variable is set.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

# Replaces the entry points wherever a module of PyTorch has them.
_PROGRAM = """
import sys, types
import torch
import aten_recompute

def refuse(*args, **kwargs):
    raise RuntimeError("an entry point of torch.jit was called")

for function in (torch.jit.script, torch.jit.trace, torch.jit.trace_module, torch.jit.load, torch.jit.save,
                 torch.jit.freeze, torch.jit.optimize_for_inference):
    for module in list(sys.modules.values()):
        if isinstance(module, types.ModuleType) and module.__name__.split(".")[0] == "torch":
            for name, value in list(vars(module).items()):
                if value is function:
                    setattr(module, name, refuse)
try:
    torch.jit.load(sys.argv[1])
except RuntimeError as error:
    assert "entry point" in str(error)
else:
    raise AssertionError("the entry points still work")

folder, x = sys.argv[2], torch.ones(2, 4)

def gradients(module):
    module.zero_grad(set_to_none=True)
    module(x).backward()
    return [p.grad.clone() for p in module.parameters()]

def same(module):
    assert all(torch.equal(a, b) for a, b in zip(gradients(module), expected, strict=True))

plain = aten_recompute.load(sys.argv[1])
expected = gradients(plain)
lowered = aten_recompute.lower(plain, "segments")
same(lowered)
lowered.save(folder + "/lowered.pt")
same(aten_recompute.load(folder + "/lowered.pt"))
same(aten_recompute.clone(lowered))
same(aten_recompute.unlower(lowered))
aten_recompute.report(lowered)
aten_recompute.enable(plain, "segments")
same(plain)
plain.save(folder + "/enabled.pt")
aten_recompute.disable(plain)
same(aten_recompute.load(folder + "/enabled.pt"))
with aten_recompute.enabled("segments"):
    same(aten_recompute.load(sys.argv[1]))
aten_recompute.estimate(plain, (x,))
aten_recompute.profile(plain, (x,))
print("done")
"""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)).sum()


@pytest.mark.lowered_only
def test_nothing_calls_an_entry_point_of_torch_jit(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Net()), tmp_path / "plain.pt")
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(tmp_path / "plain.pt"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert result.stdout.strip().endswith("done")
