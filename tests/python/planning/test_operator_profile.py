"""``profile``: what each operator and each module costs."""

import csv
import io
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from aten_recompute import Profile, profile
from benchmarks import models


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.norm(self.linear(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(32) for _ in range(2)])
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.dropout(x).sum()


@pytest.fixture(params=[False, True], ids=["measured", "meta"])
def profiled(request: pytest.FixtureRequest) -> Profile:
    return profile(torch.jit.script(Net()), torch.randn(64, 32), meta=request.param)


def test_each_operator_has_sizes_types_bytes_and_operations(profiled: Profile) -> None:
    (linear,) = [n for n in profiled.nodes if n.operator == "aten_recompute::linear" and n.module == "blocks.0.linear"]
    assert linear.phase == "forward"
    assert linear.layer == 0
    assert [(each.sizes, each.dtype) for each in linear.results] == [((64, 32), "Float")]
    assert linear.bytes == 64 * 32 * 4
    assert linear.kept_bytes == 64 * 32 * 4  # which the norm's backward reads
    assert linear.flops == pytest.approx(2 * 64 * 32 * 32, rel=0.1)
    gradients = [n for n in profiled.nodes if n.phase == "backward" and n.module == "blocks.0.linear"]
    assert {n.backward_of for n in gradients} == {"aten::linear"}
    assert sum(n.flops for n in gradients) == pytest.approx(2 * 64 * 32 * 32, rel=0.1)  # x needs no gradient
    assert all((n.seconds is None) == profiled.meta for n in profiled.nodes)


def test_modules_contain_what_is_in_them(profiled: Profile) -> None:
    rows = {each.module: each for each in profiled.modules()}
    assert list(rows) == [
        "",
        "blocks",
        "blocks.0",
        "blocks.0.linear",
        "blocks.0.norm",
        "blocks.1",
        "blocks.1.linear",
        "blocks.1.norm",
        "dropout",
    ]
    assert rows[""].forward_flops == sum(n.flops for n in profiled.nodes if n.phase == "forward")
    assert rows["blocks"].kept_bytes == rows["blocks.0"].kept_bytes + rows["blocks.1"].kept_bytes
    assert rows["blocks.0"].backward_flops > rows["blocks.0.linear"].backward_flops
    assert [each.module for each in profiled.modules(depth=1)] == ["", "blocks", "dropout"]


def test_both_ways_give_the_same_bytes_and_operations() -> None:
    workload = models.make("gpt", "small")
    scripted = torch.jit.script(workload.module)
    measured, described = (profile(scripted, workload.inputs, meta=meta) for meta in (False, True))
    assert [(n.operator, n.results, n.bytes, n.kept_bytes, n.flops) for n in measured.nodes] == [
        (n.operator, n.results, n.bytes, n.kept_bytes, n.flops) for n in described.nodes
    ]
    assert sum(n.seconds or 0.0 for n in measured.nodes) > 0.0


def test_what_is_kept_is_what_an_estimate_says() -> None:
    workload = models.make("bert", "small")
    scripted = torch.jit.script(workload.module)
    kept = sum(n.kept_bytes for n in profile(scripted, workload.inputs, meta=True).nodes)
    saved = aten_recompute.estimate(scripted, workload.inputs, fuse=False)["unplanned_saved_bytes"]
    assert kept == pytest.approx(saved, rel=0.02)


def test_a_profile_changes_neither_buffers_nor_random_states() -> None:
    scripted = torch.jit.script(Net())
    before = {name: value.clone() for name, value in scripted.state_dict().items()}
    state = torch.random.get_rng_state()
    profile(scripted, torch.randn(64, 32, generator=torch.Generator()))
    assert all(torch.equal(before[name], value) for name, value in scripted.state_dict().items())
    assert torch.equal(state, torch.random.get_rng_state())


def test_tables_have_a_row_per_module_or_operator(profiled: Profile) -> None:
    lines = str(profiled).splitlines()
    assert lines[0].split()[:4] == ["module", "operators", "results", "kept"]
    assert ("ms" in lines[0]) is not profiled.meta
    assert [line.split()[0] for line in lines[1:]] == ["(all)", "blocks", "blocks.0", "blocks.1", "dropout"]
    assert lines == profiled.table().splitlines()
    nodes = profiled.table("node", limit=3).splitlines()
    assert len(nodes) == 4
    assert "Float[64, 32]" in nodes[1]
    with pytest.raises(ValueError, match='by is "module" or "node", not "layer"'.replace('"layer"', "'layer'")):
        profiled.table("layer")


def test_exports_contain_every_operator(profiled: Profile, tmp_path: Path) -> None:
    data = json.loads(json.dumps(profiled.to_dict()))
    assert len(data["nodes"]) == len(profiled.nodes)
    assert data["meta"] is profiled.meta
    path = tmp_path / "profile.csv"
    text = profiled.to_csv(path)
    assert path.read_text(encoding="utf-8") == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["operator"] for row in rows] == [n.operator for n in profiled.nodes]
    assert [row["module"] for row in csv.DictReader(io.StringIO(profiled.to_csv(by="module")))] == [
        each.module for each in profiled.modules()
    ]


def test_breaks_are_listed() -> None:
    class Prints(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = torch.tanh(self.linear(x))
            print("between")
            return y.exp().sum()

    found = profile(torch.jit.script(Prints()), torch.randn(4, 4), meta=True)
    assert found.regions == 2
    assert [each["node"] for each in found.breaks] == ["prim::Print"]
    assert {n.region for n in found.nodes} == {0, 1}
