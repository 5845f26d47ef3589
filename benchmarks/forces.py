"""Peak and time of interatomic potentials whose forces are gradients inside of the module, beside eager and stock.

    python benchmarks/forces.py                                     # every potential of `make zoo`, training
    python benchmarks/forces.py schnet_forces --atoms 60 --inference --budgets 0.7 0.5 0.4
    python benchmarks/forces.py mace_forces --atoms 2000 --steps 3

"checkpoint" is eager PyTorch with torch.utils.checkpoint (not reentrant) around each block of the potential. "compile",
which --compile adds, is eager PyTorch with torch.compile; it compiles for a minute or more, and what it cannot do is
named in place of a figure.
Budgets are fractions of eager PyTorch's peak. In training the loss is on energies and forces, and gradients exist when
a step begins; for inference the module is frozen and in evaluation. Times are CPU time of the process, which other
programs on the machine disturb less: medians of steps on one thread, each the third of three, in turn with the other
methods. The models come from their authors' packages (tests/zoo/requirements.txt, in build/zoo).
"""

import argparse
import functools
import inspect
import statistics
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "build" / "zoo")]

import aten_recompute  # noqa: E402
from benchmarks.arguments import positive  # noqa: E402
from benchmarks.memory import tracker  # noqa: E402
from benchmarks.timing import processor_time  # noqa: E402

# The search for a small arena takes a tenth of the time of the first ten steps, and less of later ones.
STEPS_BEFORE = 12

# The classes of each potential's blocks, around which somebody would put checkpoints.
BLOCKS = {
    "schnet_forces": {"SchNetInteraction"},
    "painn_forces": {"PaiNNInteraction", "PaiNNMixing"},
    "torchani_forces": {"AtomicNetwork"},
    "mace_forces": {"RealAgnosticInteractionBlock", "RealAgnosticResidualInteractionBlock"},
    "mace_stress": {"RealAgnosticInteractionBlock", "RealAgnosticResidualInteractionBlock"},
    "nequip_forces": {"InteractionBlock"},
    "tensornet_forces": {"TensorEmbedding", "Interaction"},
}


class Potential:
    def __init__(self, name: str, atoms: int, training: bool) -> None:
        from zoo.models import MODELS

        self.model, self.training = MODELS[name], training
        torch.manual_seed(0)
        makes_sizes = bool(inspect.signature(self.model.inputs).parameters)
        inputs: Callable[..., Any] = self.model.inputs
        self.inputs = inputs(atoms) if makes_sizes else inputs()

    def make(self) -> torch.nn.Module:
        torch.manual_seed(0)
        return self.model.make().train(self.training).requires_grad_(self.training)

    def script(self) -> torch.jit.ScriptModule:
        scripted: torch.jit.ScriptModule = (self.model.script or torch.jit.script)(self.make())
        return scripted

    def step(self, module: torch.nn.Module, inputs: list[Any]) -> None:
        outputs = list(module(*inputs))
        if not self.training:
            return
        loss = sum(((each - 0.1) ** 2).sum() for each in outputs if each.requires_grad)
        del outputs
        torch.autograd.backward([loss])

    def measure(self, module: torch.nn.Module) -> tuple[int, float]:
        """Returns peak in bytes and seconds of one step."""
        inputs = [each.detach().clone() for each in self.inputs]
        with tracker.measure_peak() as peak, processor_time() as elapsed:
            self.step(module, inputs)
        return peak.bytes, elapsed.seconds


def checkpointed(module: torch.nn.Module, classes: set[str]) -> torch.nn.Module:
    """Puts a checkpoint around each submodule of these classes."""
    blocks = [each for each in module.modules() if type(each).__name__ in classes]
    assert blocks, classes
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return module


def warm_up(potential: Potential, method: torch.nn.Module) -> int | str:
    """Returns the peak of the last of some steps in bytes, or an error."""
    peak = 0
    try:
        for _ in range(STEPS_BEFORE):
            peak, _ = potential.measure(method)
    except (RuntimeError, ValueError, AssertionError) as error:  # of a budget, of a checkpoint, or of torch.compile
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return peak


def compare(
    name: str, atoms: int, training: bool, budgets: list[float], exact: bool, steps: int, compiles: bool
) -> None:
    potential = Potential(name, atoms, training)
    eager = potential.make()
    for _ in range(STEPS_BEFORE):
        eager_peak, _ = potential.measure(eager)
    methods: dict[str, torch.nn.Module] = {"eager": eager, "stock": potential.script()}
    methods["checkpoint"] = checkpointed(potential.make(), BLOCKS[name])
    if compiles:
        methods["compile"] = torch.compile(potential.make())  # type: ignore[assignment]
    methods["none"] = aten_recompute.lower(potential.script(), "none")
    for budget in budgets:
        methods[f"budget {budget}"] = aten_recompute.lower(
            potential.script(), "budget", memory_budget=int(budget * eager_peak), exact=exact, accumulate=training
        )
    peaks: dict[str, int] = {}
    for label, method in list(methods.items()):
        peak = warm_up(potential, method)
        if isinstance(peak, int):
            peaks[label] = peak
        else:
            print(f"| {name} | {atoms} | {label} | {peak} | |")
            del methods[label]
    times: dict[str, list[float]] = {label: [] for label in methods}
    for _ in range(steps):
        for label, method in methods.items():
            for _ in range(2):
                potential.measure(method)  # the arena that the method before has kept makes way for its own
            times[label].append(potential.measure(method)[1])
    for label in methods:
        time_factor = statistics.median(times[label]) / statistics.median(times["eager"])
        print(f"| {name} | {atoms} | {label} | {peaks[label] / eager_peak:.2f} | {time_factor:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = list(BLOCKS)
    parser.add_argument("potentials", nargs="*", default=known, metavar="POTENTIAL", help=", ".join(known))
    parser.add_argument("--atoms", type=int, default=40, help="atoms of a system (default: %(default)s)")
    parser.add_argument("--inference", action="store_true", help="energies and forces of a frozen module")
    parser.add_argument("--budgets", type=float, nargs="*", default=[0.7, 0.5, 0.4], help="(default: %(default)s)")
    parser.add_argument("--steps", type=positive, default=9, help="timed steps (default: %(default)s)")
    parser.add_argument("--compile", action="store_true", help="measure torch.compile, too")
    parser.add_argument("--inexact", action="store_true", help="exact=False, under which operators may run in slices")
    arguments = parser.parse_args()
    if unknown := set(arguments.potentials) - set(known):
        parser.error(f"there is no potential {unknown.pop()!r}; there are {', '.join(known)}")
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    tracker.install()
    print("| potential | atoms | method | peak, of eager's | time, of eager's |\n|---|---|---|---|---|")
    training, exact = not arguments.inference, not arguments.inexact
    for name in arguments.potentials:
        compare(name, arguments.atoms, training, arguments.budgets, exact, arguments.steps, arguments.compile)


if __name__ == "__main__":
    main()
