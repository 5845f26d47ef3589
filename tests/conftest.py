"""Fixtures of all Python tests: import paths, equal random states, and a clean state after each test."""

import gc
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import torch

if TYPE_CHECKING:
    from benchmarks.memory import Tracker

REPOSITORY = Path(__file__).resolve().parents[1]

# The package is tested in the source tree. `benchmarks` is a folder of the repository and no part of the package.
for folder in (REPOSITORY, REPOSITORY / "python"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import aten_recompute  # noqa: E402  (the paths above lead to it)
from aten_recompute._layers import LAYER_PATTERN  # noqa: E402

SEED = 20

# Tests use small tensors: all of them lie in arenas, and what is read too late, or written too early, is NaN. The
# library reads this when it first needs it. RECOMPUTE_ARENA=off runs the tests without arenas.
os.environ.setdefault("RECOMPUTE_ARENA_MIN_BYTES", "1")
os.environ.setdefault("RECOMPUTE_ARENA_POISON", "1")

KEPT_VARIABLES = {
    "RECOMPUTE_LIBRARY",
    "RECOMPUTE_ARENA",
    "RECOMPUTE_ARENA_MIN_BYTES",
    "RECOMPUTE_ARENA_POISON",
    "RECOMPUTE_LINT",
}


# Most tests say nothing of how good a plan is, and would take a third of their time for the search if it looked at as
# many plans as it does for users. Those of the other folders do, or run what users run.
SEARCH_STEPS = "20000"
FOLDERS_WITH_WHOLE_SEARCHES = {"planning", "benchmarking", "command", "documents", "instruments"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--in-place",
        action="store_true",
        help="where a test lowers a module, make a plain copy that shares its tensors and enable that",
    )
    parser.addoption(
        "--few-strategies",
        action="store_true",
        help="of tests that run with each strategy, run those with none and budget only",
    )


def _enabled_copy(
    module: torch.jit.ScriptModule, strategy: Any = None, *, methods: Any = ("forward",), **options: Any
) -> torch.jit.ScriptModule:
    """Stands in for ``aten_recompute.lower`` with ``--in-place``."""
    lowered = aten_recompute._lower.lower(module, strategy, methods=methods, **options)  # raises what is to be raised
    copy = aten_recompute.unlower(lowered)
    copy.__dict__.update({name: value for name, value in module.__dict__.items() if name == LAYER_PATTERN})
    aten_recompute.enable(copy, strategy, methods=methods, **options)
    return copy


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "lowered_only: what is tested is another thing for modules that are enabled")
    if config.getoption("--in-place"):
        aten_recompute.lower = _enabled_copy
    # PyTorch warns at every call that torch.jit is deprecated, with a DeprecationWarning or, from 2.14 on, a
    # FutureWarning. Only this warning is silenced.
    config.addinivalue_line("filterwarnings", r"ignore:`torch\.jit\.\w+` is deprecated")
    _keep_builtins_alive()
    if not torch.cuda.is_available():
        # torch.manual_seed writes down the stack of its caller for each kind of device that may be used later.
        torch.manual_seed = torch.default_generator.manual_seed


def pytest_collection_finish() -> None:
    # Some hundred thousand objects live as long as the process. The garbage collector need not look at them each time.
    gc.collect()
    gc.freeze()


def _keep_builtins_alive() -> None:
    """Keeps every function alive that PyTorch registers as a builtin of TorchScript.

    PyTorch registers them by ``id()`` alone. When an operator gets another overload, its function is made anew and the
    earlier one is freed (importing torch._inductor does this to four functions). Whatever object is allocated at that
    address later counts as a builtin: in rare whole runs, ``torch.jit.script`` of a Conv2d failed at a list of numbers.
    """
    alive: list[Callable[..., Any]] = []
    register = torch.jit._builtins._register_builtin

    def register_and_hold(function: Callable[..., Any], operator: str) -> None:
        alive.append(function)
        register(function, operator)

    torch.jit._builtins._register_builtin = register_and_hold  # type: ignore[assignment]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--in-place"):
        items[:] = [item for item in items if item.get_closest_marker("lowered_only") is None]
    if config.getoption("--few-strategies"):
        items[:] = [item for item in items if _strategy_of(item) not in ("all", "segments", "min_cut")]


def _strategy_of(item: pytest.Item) -> object:
    return item.callspec.params.get("strategy") if hasattr(item, "callspec") else None


def _seed_all() -> None:
    torch.manual_seed(SEED)
    numpy.random.seed(SEED)
    random.seed(SEED)


@pytest.fixture(autouse=True)
def clean_state(request: pytest.FixtureRequest) -> Iterator[None]:
    """Seeds every generator and removes the caller's RECOMPUTE variables; afterward restores what a test can change.

    These are the default dtype, grad mode, the random states and the environment variables that begin with RECOMPUTE.
    Those that say which library is loaded, and how it is tested, stay.
    """
    dtype = torch.get_default_dtype()
    grad_enabled = torch.is_grad_enabled()
    torch_state = torch.get_rng_state()
    numpy_state = numpy.random.get_state()
    python_state = random.getstate()
    environment = {name: value for name, value in os.environ.items() if name.startswith("RECOMPUTE")}

    for name in environment.keys() - KEPT_VARIABLES:
        del os.environ[name]
    if request.path.parent.name not in FOLDERS_WITH_WHOLE_SEARCHES:
        os.environ["RECOMPUTE_SEARCH_STEPS"] = SEARCH_STEPS
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
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at few plans in a folder with whole searches."""
    monkeypatch.setenv("RECOMPUTE_SEARCH_STEPS", SEARCH_STEPS)


@pytest.fixture
def reseed() -> Callable[[], None]:
    """A function that seeds every generator again, so that a second run draws the same numbers as the first."""
    return _seed_all


@pytest.fixture
def tracker() -> "Iterator[Tracker]":
    """The tracking CPU allocator, installed for one test."""
    from benchmarks.memory import tracker as shared

    shared.install()
    yield shared
    shared.uninstall()


@pytest.fixture
def one_thread() -> "Iterator[None]":
    """One thread computes sums, in one order. With several, some results differ in the last bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def keeps_control_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the recording of paths, so that branches, loops and containers end regions."""
    monkeypatch.setenv("RECOMPUTE_DISABLE_PASSES", "record_path")
