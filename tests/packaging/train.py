"""The README's first example, with a small network: lowers, trains, saves, and writes a plain module for C++."""

import json
import sys
import warnings
from importlib.metadata import entry_points
from pathlib import Path

import torch
from torch import Tensor, nn

warnings.filterwarnings("error", ".*", module="aten_recompute")

import aten_recompute  # noqa: E402  (the filter above is for it)


class Net(nn.Module):
    """Several layers, so that there is something to compute again."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(6)))

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(self.layers(x), targets)


def main() -> None:
    """Trains twice, planned and not, and compares."""
    folder = Path(sys.argv[1])
    torch.manual_seed(1)
    model = torch.jit.script(Net())
    model.save(str(folder / "plain.pt"))  # type: ignore[no-untyped-call]
    lowered = aten_recompute.lower(model, "budget", memory_budget=0.6)
    optimizer = torch.optim.SGD(lowered.parameters(), lr=0.1)
    x, targets = torch.rand(256, 32), torch.rand(256, 32)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = lowered(x, targets)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0], losses
    # A non-empty list of what is computed again, wherever it stands in the report.
    assert '"recomputed": ["' in json.dumps(aten_recompute.report(lowered)), "nothing is computed again"
    # The package has the parts of the page, and pytest finds the plugin.
    aten_recompute.report(lowered).to_html(folder / "step.html")
    assert "uPlot" in (folder / "step.html").read_text()
    assert "aten_recompute_pytest" in [each.value for each in entry_points(group="pytest11")]
    lowered.save(str(folder / "lowered.pt"))
    print(f"trained with torch {torch.__version__} and {aten_recompute.library_path()}")


main()
