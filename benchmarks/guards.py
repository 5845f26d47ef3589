"""What it costs to find out before a call which recorded path it takes.

    python benchmarks/guards.py

A method with `n` conditions on its input's size is called beside the same method without them. Both run the same
operators, so the difference is the guard's. With several paths, calls take them in turn, and a call tries the guard of
the last path first, then those of the others in the order in which they were recorded.
"""

import argparse
import statistics
import time

import torch

import aten_recompute


def program(lines: list[str]) -> torch.jit.ScriptModule:
    class Program(torch.jit.ScriptModule):  # a class of its own, because TorchScript compiles a class once
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1))
            self.define("def forward(self, x):\n" + "".join(f"    {line}\n" for line in lines))

    return Program()


def module_with(checks: int) -> torch.jit.ScriptModule:
    """Makes a method whose `checks` conditions never hold, up to the size 1000."""
    lines = ["y = torch.tanh(x * self.w)"]
    for i in range(checks):
        lines += [f"if x.size(0) > {1000 + i}:", "    y = torch.exp(y)"]
    return program([*lines, "return y * self.w"])


def module_with_paths(paths: int) -> torch.jit.ScriptModule:
    """Makes a method with a path for each of the sizes 1 to `paths`. Each of them has a guard of `paths` conditions."""
    lines = ["y = torch.tanh(x * self.w)"]
    for i in range(paths):
        lines += [f"if x.size(0) == {i + 1}:", f"    y = y + {i}"]
    return program([*lines, "return y * self.w"])


class Flagged(torch.nn.Module):
    def __init__(self, flag: bool) -> None:
        super().__init__()
        self.flag = flag

    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return torch.exp(y) if self.flag else y


class Plain(torch.nn.Module):
    def forward(self, y: torch.Tensor) -> torch.Tensor:
        return y


class Nested(torch.nn.Module):
    """Modules that each read an attribute of their own, or none."""

    def __init__(self, count: int, reads: bool) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(1))
        self.parts = torch.nn.Sequential(*(Flagged(False) if reads else Plain() for _ in range(count)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.parts(torch.tanh(x * self.w)) * self.w


def microseconds(module: torch.jit.ScriptModule, inputs: list[torch.Tensor], calls: int) -> float:
    start = time.perf_counter()
    for i in range(calls):
        module(inputs[i % len(inputs)])
    return 1e6 * (time.perf_counter() - start) / calls


def medians(
    modules: dict[str, torch.jit.ScriptModule], inputs: dict[str, list[torch.Tensor]], repeats: int, calls: int
) -> dict[str, float]:
    """Times the modules in turn."""
    for name, module in modules.items():
        microseconds(module, inputs[name], max(50, len(inputs[name]) * 4))
    times: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(repeats):
        for name, module in modules.items():
            times[name].append(microseconds(module, inputs[name], calls))
    return {name: statistics.median(values) for name, values in times.items()}


def number_of_specializations(module: torch.jit.ScriptModule) -> int:
    return sum(len(method["specialisations"]) for method in aten_recompute.report(module)["methods"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--calls", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    one = [torch.ones(1)]
    counts = (0, 1, 10, 100)
    print("| conditions | lowered, us | above none | per condition | stock TorchScript, us |")
    print("|---|---|---|---|---|")
    lowered = {f"lowered {n}": aten_recompute.lower(module_with(n), strategy="none") for n in counts}
    modules = lowered | {f"stock {n}": module_with(n) for n in counts}
    found = medians(modules, dict.fromkeys(modules, one), options.repeats, options.calls)
    for n in counts:
        ours = found[f"lowered {n}"]
        more = ours - found["lowered 0"]
        print(f"| {n} | {ours:.2f} | {more:.2f} | {more / n if n else 0:.3f} | {found[f'stock {n}']:.2f} |")
    print("\n| attributes read | lowered, us | without them, us | per attribute |")
    print("|---|---|---|---|")
    for n in counts[1:]:
        pair = {
            name: aten_recompute.lower(torch.jit.script(Nested(n, reads)), strategy="none")
            for name, reads in (("with", True), ("without", False))
        }
        found = medians(pair, dict.fromkeys(pair, one), options.repeats, options.calls)
        more = found["with"] - found["without"]
        print(f"| {n} | {found['with']:.2f} | {found['without']:.2f} | {more / n:.3f} |")
    print("\n| paths in turn | lowered, us | the last path again, us | specializations |")
    print("|---|---|---|---|")
    for paths in (1, 2, 4, 8, 16, 32):
        module = aten_recompute.lower(module_with_paths(paths), strategy="none")
        sizes = [torch.ones(i + 1) for i in range(paths)]
        turns = medians({"": module}, {"": sizes}, options.repeats, options.calls)[""]
        again = medians({"": module}, {"": sizes[-1:]}, options.repeats, options.calls)[""]
        print(f"| {paths} | {turns:.2f} | {again:.2f} | {number_of_specializations(module)} |")


if __name__ == "__main__":
    main()
