"""``python -m fuzz --count 2000 --seed 7`` runs random programs, and shrinks the first one that differs from eager."""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, seed, settings
from tqdm import tqdm

from . import check_modules, norms
from .check import check, shares
from .modules import loops, models
from .programs import programs

KINDS: dict[str, tuple[Any, Callable[[Any], str]]] = {
    "functions": (programs(), check),
    "gradients": (programs(of_gradients=True), check),
    "modules": (models(), check_modules.check),
    "norms": (norms.networks(), norms.check),
    "loops": (loops(), check_modules.check),
    "layouts": (norms.layouts(), norms.check),
    "autocast": (programs(under_autocast=True), check),
    "autocast_modules": (models(under_autocast=True), check_modules.check),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="number of programs (default: %(default)s)")
    parser.add_argument(
        "--kind",
        choices=KINDS,
        default="functions",
        help="what is drawn: functions of three tensors, functions that ask for gradients, modules that train for some "
        "calls, networks of norms, or networks of convolutions that change layouts, or modules of loops that "
        "data leave; functions and modules under autocast and with blocks of it",
    )
    parser.add_argument("--seed", type=int, help="seed of the programs (default: a random one, which is printed)")
    arguments = parser.parse_args()
    start = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {start}")
    strategy, compare = KINDS[arguments.kind]
    torch.set_num_threads(1)  # with several threads, sums have another order and therefore another result
    # Where opt_einsum is installed, eager PyTorch contracts in another order than TorchScript does.
    torch.backends.opt_einsum.enabled = False
    skipped: Counter = Counter()
    failed_at = 0  # how many programs it took
    bar = tqdm(total=arguments.count, desc="fuzz", unit="program", disable=None)

    @seed(start)
    @settings(max_examples=arguments.count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def one(drawn: Any) -> None:
        nonlocal failed_at
        bar.update()
        try:
            skipped[compare(drawn)] += 1
        except AssertionError:
            failed_at = failed_at or sum(skipped.values()) + 1
            raise

    try:
        one()
    except AssertionError as error:
        print(error)
        print(f"program {failed_at} was the first that differs; the rest shrank it")
        return 1
    finally:
        bar.close()
        print(shares(skipped))
    return 0


if __name__ == "__main__":
    sys.exit(main())
