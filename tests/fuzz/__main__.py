"""``python -m fuzz --count 2000 --seed 7``: that many programs; the first that differs from eager is made small."""

import argparse
import random
import sys
from collections import Counter

import torch
from hypothesis import HealthCheck, given, seed, settings
from tqdm import tqdm

from .check import check, shares
from .programs import Program, programs


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="programs (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="what the draw begins with (default: another each time, printed)")
    arguments = parser.parse_args()
    start = random.SystemRandom().randrange(2**32) if arguments.seed is None else arguments.seed
    print(f"seed {start}")
    torch.set_num_threads(1)  # sums in another order are another result
    skipped: Counter = Counter()
    bar = tqdm(total=arguments.count, desc="fuzz", unit="program")

    @seed(start)
    @settings(max_examples=arguments.count, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def one(program: Program) -> None:
        bar.update()
        skipped[check(program)] += 1

    try:
        one()
    except AssertionError as error:
        print(error)
        return 1
    finally:
        bar.close()
        print(shares(skipped))
    return 0


if __name__ == "__main__":
    sys.exit(main())
