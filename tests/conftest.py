"""What every Python test stands on: import paths, equal random state, and nothing global left behind."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[1]

# The package is tested from the source tree; `benchmarks` is a folder of the repository, not part of the package.
for folder in (REPOSITORY, REPOSITORY / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

SEED = 20


def pytest_configure(config: pytest.Config) -> None:
    # PyTorch 2.13 announces the end of torch.jit at each call of it. That is known here, and only that is silenced:
    # any other DeprecationWarning stays visible.
    config.addinivalue_line("filterwarnings", r"ignore:`torch\.jit\.\w+` is deprecated:DeprecationWarning")
    _keep_builtins_alive()


def _keep_builtins_alive() -> None:
    """Holds on to every function that PyTorch notes as a builtin of TorchScript.

    It notes them by ``id()`` alone. Where an operator gets another overload its function is made anew and the former one
    is freed (importing torch._inductor does that to four), and whatever object comes to lie at that address is a
    builtin from then on: ``torch.jit.script`` of a Conv2d then failed at a list of numbers, once in some whole runs.
    """
    alive = []
    register = torch.jit._builtins._register_builtin

    def register_and_hold(function: Callable[..., Any], operator: str) -> None:
        alive.append(function)
        register(function, operator)

    torch.jit._builtins._register_builtin = register_and_hold


def _seed_all() -> None:
    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    random.seed(SEED)


@pytest.fixture(autouse=True)
def clean_state() -> Iterator[None]:
    """Seeds every generator and hides the caller's RECOMPUTE variables; afterwards puts back what a test can change.

    That is: the default dtype, grad mode, the random states and every environment variable that starts with RECOMPUTE.
    """
    dtype = torch.get_default_dtype()
    grad_enabled = torch.is_grad_enabled()
    torch_state = torch.get_rng_state()
    numpy_state = numpy.random.get_state()
    python_state = random.getstate()
    environment = {name: value for name, value in os.environ.items() if name.startswith("RECOMPUTE")}

    for name in environment:
        del os.environ[name]
    _seed_all()
    try:
        yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad_enabled)
        torch.set_rng_state(torch_state)
        numpy.random.set_state(numpy_state)
        random.setstate(python_state)
        for name in [name for name in os.environ if name.startswith("RECOMPUTE")]:
            del os.environ[name]
        os.environ.update(environment)


@pytest.fixture
def reseed():
    """A function that seeds every generator again, for a second run that must draw the same numbers as the first."""
    return _seed_all


@pytest.fixture
def tracker():
    """The tracking CPU allocator, installed for the length of one test."""
    from benchmarks.memory import tracker as shared

    shared.install()
    yield shared
    shared.uninstall()
