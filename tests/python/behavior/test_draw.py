"""draw(): pictures of forward and backward, and of the memory of a step."""

import os
import re
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from benchmarks.models import make
from support.helpers import lowered_copy
from support.nets import Net
from support.several_regions import Broken, rows

GRAPHS = ("joint", "forward", "backward")
KEPT, DROPPED, AGAIN = "#9ecae1", "#fee391", "#fd8d3c"


def trained(module: nn.Module, inputs: tuple[Tensor, ...], strategy: Any = "none", **options: Any) -> Any:
    lowered = lowered_copy(module, strategy, **options)
    lowered(*inputs).backward()
    return lowered


def trained_net(strategy: Any = "none", **options: Any) -> Any:
    return trained(Net(), (torch.randn(64, 16),), strategy, **options)


def trained_workload(name: str, strategy: Any = "budget", **options: Any) -> Any:
    workload = make(name, size="small")
    if strategy == "budget":
        options = {"memory_budget": 0.7, "unreachable": "leanest", "cost_model": "flops", **options}
    lowered = aten_recompute.lower(torch.jit.script(workload.module), strategy, accumulate=True, **options)
    workload.step(lowered)
    return lowered


def dot_of(lowered: Any, folder: Path, what: Any = "joint", **arguments: Any) -> str:
    path = folder / "picture.dot"
    aten_recompute.draw(lowered, path, what, **arguments)
    return path.read_text()


def nodes_of(dot: str) -> dict[str, dict[str, str]]:
    """Returns the attributes of each node, by its label."""
    nodes = {}
    for line in re.findall(r"^\d+\[(.*)\];$", dot, re.MULTILINE):
        attributes = {
            key: quoted or plain for key, quoted, plain in re.findall(r'(\w+)=(?:"([^"]*)"|(\S+?))[,\]\s$]', line + ",")
        }
        nodes[attributes["label"]] = attributes
    return nodes


def test_values_have_the_color_of_what_becomes_of_them(tmp_path: Path) -> None:
    """The backward of tanh reads its result; with "names", the sigmoid and what follows from it are computed again."""
    lowered = trained_net({"strategy": "names", "keywords": ["tanh"]}, profile=True)
    report = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"][0]["variants"][0]
    nodes = nodes_of(dot_of(lowered, tmp_path))
    assert [name for name in report["saved"] if name.startswith("sigmoid")]
    for name in report["saved"]:
        assert nodes[f"{name.split('_')[0]}\\n{name}"]["fillcolor"] == KEPT
    (again,) = report["recomputed"]
    assert again.startswith("tanh")
    assert again.endswith("_recomputed")
    name = again.removesuffix("_recomputed")
    assert nodes[f"tanh\\n{name}"]["fillcolor"] == DROPPED
    assert nodes[f"tanh\\nagain: {name}"]["fillcolor"] == AGAIN
    assert {"kept for the backward", "computed again"} <= set(nodes)  # the legend


def test_edges_say_the_bytes(tmp_path: Path) -> None:
    with_sizes = dot_of(trained_net(profile=True), tmp_path)
    assert 'xlabel="8.0 KiB"' in with_sizes  # 64 x 32 floats that the backward reads
    without = dot_of(trained_net(), tmp_path)
    assert "KiB" not in without
    assert without.count("->") == with_sizes.count("->")


@pytest.mark.parametrize("what", GRAPHS)
@pytest.mark.parametrize(
    "name", ["gpt", "resnet50", "mlp_loss", "transformer", "unet", "densenet121", "mobilenet", "bert"]
)
@pytest.mark.parametrize("strategy", ["budget", "all", "none"])
def test_graphviz_draws_every_model(name: str, strategy: str, what: Any, tmp_path: Path) -> None:
    """A wide picture is unreadable: the layers of these models fit into 6000 points."""
    lowered = trained_workload(name, strategy)
    path = tmp_path / "picture.svg"
    aten_recompute.draw(lowered, path, what)
    text = path.read_text()
    size = re.search(r'<svg width="(\d+)pt" height="(\d+)pt"', text)
    assert size is not None
    assert max(map(int, size.groups())) < 6000
    assert "legend" in text
    assert os.listdir(tmp_path) == ["picture.svg"]


def test_png(tmp_path: Path) -> None:
    path = tmp_path / "picture.PNG"
    aten_recompute.draw(trained_net(), path)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width > 100
    assert height > 100


def test_layers_are_boxes_and_one_is_opened_on_request(tmp_path: Path) -> None:
    lowered = trained_workload("gpt")
    whole = nodes_of(dot_of(lowered, tmp_path))
    for block in range(3):
        (label,) = [label for label in whole if label.startswith(f"blocks.{block}\\n")]
        assert "operators" in label
        assert "kept" in label
        assert [label for label in whole if label.startswith(f"blocks.{block}, backward\\n")]
    assert len(whole) < 60
    assert not [label for label in whole if "softmax_1" in label]

    opened = nodes_of(dot_of(lowered, tmp_path, layer="blocks.1"))
    assert [label for label in opened if label.startswith(("_softmax", "softmax"))]
    assert not [label for label in opened if label.startswith("blocks.1\\n")]
    assert [label for label in opened if label.startswith("blocks.0\\n")], "a neighbor"
    assert not [label for label in opened if label.startswith("head")], "no neighbor"
    assert 'label="blocks.1.attention"' in dot_of(lowered, tmp_path, layer="blocks.1")


def test_operators_that_passes_insert_belong_to_a_module(tmp_path: Path) -> None:
    """Bits of masks, random states, and batch norms with their relu are inside of the layers' boxes."""
    for name, strategy in (("gpt", "budget"), ("gpt", "all"), ("resnet50", "budget")):
        nodes = nodes_of(dot_of(trained_workload(name, strategy), tmp_path))
        for kind in ("pack_bits", "unpack_bits", "random_state", "replay_random", "snapshot", "batch_norm"):
            assert not [label for label in nodes if label.startswith(kind)], (name, strategy, kind)


def test_a_graph_without_modules_is_drawn_in_stretches(tmp_path: Path) -> None:
    class Long(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            for _ in range(700):
                x = torch.sin(x) * 1.01 + x
            return x.sum()

    x = torch.randn(3, 4, requires_grad=True)
    lowered = aten_recompute.lower(torch.jit.trace(Long(), x), "none")
    lowered(x).backward()
    for what in GRAPHS:
        nodes = nodes_of(dot_of(lowered, tmp_path, what))
        assert len(nodes) < 60
        assert [label for label in nodes if label.startswith("operators 1 to ")]


def test_timeline_is_the_prediction(tmp_path: Path) -> None:
    lowered = trained_workload("gpt")
    report = aten_recompute.report(lowered)["methods"][0]["specialisations"][0]["regions"][0]["variants"][0]
    dot = dot_of(lowered, tmp_path, "timeline")
    peak = f"{report['predicted_peak_bytes'] / 1024**2:.1f} MiB"
    assert f"peak {peak}" in dot
    bars = re.findall(r'tooltip="(forward|computed again|backward): ([^"]*)"', dot)
    assert {kind for kind, _ in bars} == {"forward", "computed again", "backward"}
    assert peak in [size for _, size in bars]
    assert "budget" in dot
    for ending in ("svg", "png"):
        aten_recompute.draw(lowered, tmp_path / f"timeline.{ending}", "timeline")


@pytest.mark.usefixtures("keeps_control_flow")
def test_several_regions_are_clusters_that_hand_values_on(tmp_path: Path) -> None:
    lowered = lowered_copy(Broken(), "budget", memory_budget=0.9, unreachable="leanest")
    for _ in range(2):
        lowered(rows(64)).backward()
    dot = dot_of(lowered, tmp_path)
    assert len(re.findall(r'label="region \d"', dot)) == 3
    assert dot.count("style=dashed") == 5, "two regions hand a value on, and each has an output with a gradient"
    assert dot_of(lowered, tmp_path, "timeline").count("nothing recomputed;") == 1, "one chart for the whole step"
    segments = lowered_copy(Broken(), "segments")
    segments(rows(64)).backward()
    assert dot_of(segments, tmp_path, "timeline").count("nothing recomputed;") == 3


def test_a_call_without_gradients_does_not_hide_the_training(tmp_path: Path) -> None:
    lowered = trained_net()
    before = dot_of(lowered, tmp_path)
    lowered.eval()
    with torch.no_grad():
        lowered(torch.randn(64, 16))
    assert dot_of(lowered, tmp_path) == before


def test_methods_are_drawn_by_name(tmp_path: Path) -> None:
    lowered = lowered_copy(Net(), "none", methods=("forward", "encode"))
    x = torch.randn(64, 16)
    lowered.encode(x).sum().backward()
    assert "encode" in dot_of(lowered, tmp_path)
    lowered(x).backward()
    with pytest.raises(ValueError, match=r'^draw: several methods have run \(.*\); choose one of them with "method"$'):
        dot_of(lowered, tmp_path)
    assert "Net.encode" in dot_of(lowered, tmp_path, method="encode")
    with pytest.raises(ValueError, match=r'^draw: no method "decode" is lowered; lowered are \w+, \w+$'):
        dot_of(lowered, tmp_path, method="decode")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"what": "jiont"}, r'draw: what is "jiont"; accepted are joint, forward, .*; did you mean "joint"\?'),
        ({"path": "x.pdf"}, r'draw: the name of the file, ".*x\.pdf", ends in none of \.svg, \.png and \.dot'),
        ({"path": "x"}, r'draw: the name of the file, ".*x", ends in none of .*'),
        ({"layer": "frist"}, r'draw: no operator belongs to a layer "frist"; did you mean "first"\?'),
        ({"layer": "zzz"}, r'draw: no operator belongs to a layer "zzz"; there are first, second'),
        ({"what": "timeline"}, r"draw: a timeline needs a profile: .*"),
        ({"what": "timeline", "layer": "first"}, r"draw: a timeline shows the whole step and takes no layer"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"path": "x.svg", **arguments}
    given["path"] = str(tmp_path / given["path"])
    with pytest.raises(ValueError, match=f"^{message}$"):
        aten_recompute.draw(trained_net("all"), **given)
    assert not os.listdir(tmp_path)


def test_a_module_that_has_not_run(tmp_path: Path) -> None:
    lowered = lowered_copy(Net(), "none")
    message = r"^draw: nothing has been compiled yet: run a training step first, with gradients$"
    with pytest.raises(ValueError, match=message):
        aten_recompute.draw(lowered, tmp_path / "x.svg")
    with torch.no_grad():
        lowered(torch.randn(64, 16))
    with pytest.raises(ValueError, match=message):
        aten_recompute.draw(lowered, tmp_path / "x.svg")


def test_a_module_that_is_not_lowered(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^draw: not a lowered module .*$"):
        aten_recompute.draw(torch.jit.script(Net()), tmp_path / "x.svg")
    with pytest.raises(TypeError, match=r"^draw takes a scripted or traced module or function: .*$"):
        aten_recompute.draw(Net(), tmp_path / "x.svg")  # type: ignore[arg-type]


@pytest.mark.parametrize("ending", ["svg", "dot"])
def test_a_file_that_cannot_be_written(ending: str, tmp_path: Path) -> None:
    lowered = trained_net()
    missing = tmp_path / "missing" / f"x.{ending}"
    with pytest.raises(OSError, match=rf"^draw: cannot write {missing}: No such file or directory$"):
        aten_recompute.draw(lowered, missing)
    folder = tmp_path / f"folder.{ending}"
    folder.mkdir()
    with pytest.raises(OSError, match=rf"^draw: cannot write {folder}: Is a directory$"):
        aten_recompute.draw(lowered, folder)
    assert os.listdir(tmp_path) == [folder.name]


def test_without_graphviz_only_dot_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = trained_net()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"^draw: cannot write .*x\.svg: graphviz, .*, is not installed .*$"):
        aten_recompute.draw(lowered, tmp_path / "x.svg")
    aten_recompute.draw(lowered, tmp_path / "x.dot")
    assert os.listdir(tmp_path) == ["x.dot"]


def test_a_graphviz_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = trained_net()
    dot = tmp_path / "dot"
    dot.write_text("#!/bin/sh\necho out of ink\nexit 1\n")
    dot.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    picture = tmp_path / "x.svg"
    picture.write_text("old")
    with pytest.raises(RuntimeError, match=r"^draw: cannot write .*x\.svg: graphviz failed: out of ink$"):
        aten_recompute.draw(lowered, picture)
    assert picture.read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["dot", "x.svg"]


def test_enabled_modules_and_functions_are_drawn(tmp_path: Path) -> None:
    module, function = torch.jit.script(Net()), torch.jit.script(doubled_sine)
    with aten_recompute.enabled(module, "all"), aten_recompute.enabled(function, "all"):
        module(torch.randn(64, 16)).sum().backward()
        function(torch.rand(4, requires_grad=True)).sum().backward()
        aten_recompute.draw(module, tmp_path / "module.dot")
        aten_recompute.draw(function, tmp_path / "function.dot")
    assert "doubled_sine" in (tmp_path / "function.dot").read_text()
    assert "Net" in (tmp_path / "module.dot").read_text()


def doubled_sine(x: Tensor) -> Tensor:
    return torch.sin(x) * 2
