"""The configurations that the benchmark compares, in groups.

A configuration makes a module that can be trained from an eager one. A new configuration is one line in `baselines`,
`peers_of` or `OURS`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks import peers

Compile = Callable[[nn.Module], nn.Module]

GROUPS: tuple[str, ...] = ("eager", "torchscript", "peers", "ours")

# Budgets of PyTorch's min-cut partitioner, under AOTAutograd and torch.compile, as shares of the activation memory.
PEER_BUDGETS: tuple[float, ...] = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
# Our budgets, as shares of eager's measured peak.
OUR_BUDGETS: tuple[float, ...] = (1.0, 0.8, 0.65, 0.5, 0.4, 0.35, 0.28, 0.25, 0.2, 0.15, 0.1)
NOTHING: Mapping[str, bool] = {}
# Names in --only for configurations that are not known before something has been measured.
SWEEP = "budgets"
PARTNERS = "partners"
INEXACT_PARTNERS = "inexact_partners"  # partners with exact=False


@dataclass(frozen=True)
class Configuration:
    """A way to train a model. `budget_bytes` is its limit for the peak, if it has one."""

    name: str
    group: str
    compile: Compile
    budget_bytes: int | None = None


def lowered(**options: Any) -> Compile:
    """Our configuration with these options: the module is scripted and lowered."""

    def compile_module(module: nn.Module) -> nn.Module:
        import aten_recompute

        return aten_recompute.lower(torch.jit.script(module), **options)

    return compile_module


OURS: dict[str, dict[str, Any]] = {
    "none": {"strategy": "none"},
    "none_inexact": {"strategy": "none", "exact": False},
    "all": {"strategy": "all"},
    "layers": {"strategy": "layers", "start": 0, "stride": 2},
    "segments": {"strategy": "segments"},
    "min_cut": {"strategy": "min_cut"},
}


def baselines() -> list[Configuration]:
    return [
        Configuration("eager", "eager", lambda module: module),
        Configuration("torchscript", "torchscript", torch.jit.script),
    ]


def peers_of(model: str, compile_budgets: Sequence[float] = PEER_BUDGETS) -> list[Configuration]:
    table = dict(peers.CHECKPOINTS)
    if model == "densenet121":
        table.update(peers.DENSENET_CHECKPOINTS)
    table.update({f"aot_{budget:g}": peers.aot_min_cut(budget) for budget in PEER_BUDGETS})
    table.update({f"compile_{budget:g}": peers.inductor(budget) for budget in compile_budgets})
    return [Configuration(name, "peers", compile_module) for name, compile_module in table.items()]


def ours(said: Mapping[str, bool] = NOTHING) -> list[Configuration]:
    """Returns our configurations without a budget; `said` are options of all of them (accumulate, release_outputs)."""
    return [Configuration(name, "ours", lowered(**options, **said)) for name, options in OURS.items()]


def fixed(
    model: str, compile_budgets: Sequence[float] = PEER_BUDGETS, said: Mapping[str, bool] = NOTHING
) -> list[Configuration]:
    """Returns all configurations of `model` that can be made before anything is measured: ours with a budget cannot."""
    return baselines() + peers_of(model, compile_budgets) + ours(said)


def selectable(models: Iterable[str]) -> list[str]:
    """Returns the names that --only accepts, in the order of the table."""
    names = list(GROUPS)
    for model in models:
        names += [each.name for each in fixed(model) if each.name not in names]
    return names + [SWEEP, PARTNERS, INEXACT_PARTNERS]


def selected(configuration: Configuration, only: Sequence[str]) -> bool:
    return configuration.group in only or configuration.name in only


def with_budget(name: str, budget_bytes: int, said: Mapping[str, bool]) -> Configuration:
    name += "" if said.get("exact", True) else "_inexact"
    compile_module = lowered(strategy="budget", memory_budget=f"{budget_bytes}B", **said)
    return Configuration(name, "ours", compile_module, budget_bytes)


def sweep(eager_peak: float, fractions: Sequence[float], said: Mapping[str, bool] = NOTHING) -> list[Configuration]:
    """Returns our configurations at budgets that are fractions of eager's peak (in bytes)."""
    return [with_budget(f"budget_{fraction:g}", int(fraction * eager_peak), said) for fraction in fractions]


def partners(
    peaks: Iterable[float], said: Mapping[str, bool] = NOTHING, tolerance: float = 0.005
) -> list[Configuration]:
    """Returns our configurations at a budget for each of the peers' peaks (in bytes).

    A peak that is greater than another one by at most the factor `tolerance` shares the budget of the lower peak.
    """
    budgets: list[int] = []
    for peak in sorted(peaks):
        if not budgets or peak > (1.0 + tolerance) * budgets[-1]:
            budgets.append(int(peak))
    return [with_budget(f"budget_{budget / 2**20:.3f}MiB", budget, said) for budget in reversed(budgets)]
