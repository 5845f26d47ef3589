"""DistributedDataParallel over two processes trains a lowered module as it trains the module in eager, to the bit."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

if not torch.distributed.is_available():
    pytest.skip("this PyTorch was built without torch.distributed", allow_module_level=True)

import torch.distributed as dist
import torch.distributed.nn  # imported after init_process_group, it would keep the process group alive
import torch.multiprocessing as multiprocessing
from torch.nn.parallel import DistributedDataParallel

import aten_recompute
from support.eager_comparison import STRATEGIES

PROCESSES = 2
STEPS = 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.BatchNorm1d(32)
        self.second = nn.Linear(32, 32)
        self.last = nn.Linear(32, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.first(x)))
        return self.last(torch.dropout(torch.relu(self.second(x)) * 1.5, 0.2, self.training))


def plain(module: nn.Module, rank: int, **options: Any) -> None:
    parallel = DistributedDataParallel(module, bucket_cap_mb=0.002, **options)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.manual_seed(10 * step + rank)
        parallel(torch.randn(6, 8)).square().mean().backward()
        optimizer.step()


def views(module: nn.Module, rank: int) -> None:
    """Trains with gradients that are views of the buckets."""
    plain(module, rank, gradient_as_bucket_view=True)


def no_sync(module: nn.Module, rank: int) -> None:
    """Synchronizes every second backward only."""
    parallel = DistributedDataParallel(module, bucket_cap_mb=0.002)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.manual_seed(10 * step + rank)
        with parallel.no_sync():
            parallel(torch.randn(6, 8)).square().mean().backward()
        parallel(torch.randn(6, 8)).square().mean().backward()
        optimizer.step()


def fused(module: nn.Module, rank: int) -> None:
    """Runs the optimizer for each bucket as soon as it is reduced, while the backward continues."""
    parallel = DistributedDataParallel(module, bucket_cap_mb=0.002, broadcast_buffers=False)
    parallel._register_fused_optim(torch.optim.SGD, 0.5)
    for step in range(STEPS):
        torch.manual_seed(10 * step + rank)
        parallel(torch.randn(6, 8)).square().mean().backward()


def unused(module: nn.Module, rank: int) -> None:
    """Lets DDP search the graph for parameters that get no gradient."""
    plain(module, rank, find_unused_parameters=True)


WAYS: list[Callable[[nn.Module, int], None]] = [plain, views, no_sync, fused, unused]


def _train(rank: int, folder: str) -> None:
    """Trains in one process, in all ways, in eager and under every strategy, and writes the states to a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES)
    found: dict[str, list[Tensor]] = {}
    for way in WAYS:
        for name in ["eager", *STRATEGIES, *(f"in place {strategy}" for strategy in STRATEGIES)]:
            torch.manual_seed(0)
            module: nn.Module = Net()
            if name != "eager":
                spec = STRATEGIES[name.removeprefix("in place ")][-1]
                scripted = torch.jit.script(module)
                if name.startswith("in place "):
                    aten_recompute.enable(scripted, spec)
                    module = scripted
                else:
                    module = aten_recompute.lower(scripted, spec)
            way(module, rank)
            found[f"{way.__name__} {name}"] = [value.detach().clone() for value in module.state_dict().values()]
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _train_and_leave(rank: int, folder: str) -> None:
    """Trains a lowered module, destroys the process group and writes the names of the threads that are left."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=PROCESSES)
    plain(aten_recompute.lower(torch.jit.script(Net()), "all"), rank)
    gc.collect()
    dist.destroy_process_group()
    names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    Path(folder, f"{rank}.threads").write_text("\n".join(names))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, list[Tensor]]]:
    """The states of the modules after training, by process."""
    folder: Path = tmp_path_factory.mktemp("distributed")
    multiprocessing.spawn(_train, (str(folder),), nprocs=PROCESSES)
    return [torch.load(folder / f"{rank}.pt") for rank in range(PROCESSES)]


@pytest.mark.parametrize("place", ["", "in place "])
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_state_after_training_equals_eager(
    trained: list[dict[str, list[Tensor]]], way: Callable[..., None], strategy: str, place: str
) -> None:
    for found in trained:
        actual, expected = found[f"{way.__name__} {place}{strategy}"], found[f"{way.__name__} eager"]
        for a, b in zip(actual, expected, strict=True):
            assert torch.equal(a, b)


def test_no_thread_of_a_process_group_is_left(tmp_path: Path) -> None:
    # A thread of gloo that frees the last tensor of a message while Python ends aborts the process.
    multiprocessing.spawn(_train_and_leave, (str(tmp_path),), nprocs=PROCESSES)
    for rank in range(PROCESSES):
        assert "gloo" not in (tmp_path / f"{rank}.threads").read_text()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_eager_processes_have_equal_weights_that_changed(
    trained: list[dict[str, list[Tensor]]], way: Callable[..., None]
) -> None:
    torch.manual_seed(0)
    net = Net()
    buffers = {name for name, _ in net.named_buffers()}
    first, second = (found[f"{way.__name__} eager"] for found in trained)
    for name, start, a, b in zip(net.state_dict(), net.state_dict().values(), first, second, strict=True):
        if name not in buffers:
            assert torch.equal(a, b)
        if name.endswith("weight"):
            assert not torch.equal(a, start)
