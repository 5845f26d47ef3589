"""A mistake of the user raises one line that names it, wherever it is noticed."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import aten_recompute
from support.helpers import assert_same, lowered_copy, saved_and_loaded, scripted_copy, to_backend
from support.nets import ConvNet, Residual


def line_of(call: Callable[[], Any]) -> str:
    """Returns the message of a call that fails, which is one line without a traceback of TorchScript."""
    with pytest.raises((RuntimeError, ValueError)) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("aten_recompute: ")
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    return str(raised.value)


class Broken(nn.Module):
    """Has two regions."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.layer(x))
        print("between")
        return torch.tanh(self.layer(h))


def rows(requires_grad: bool = False) -> Tensor:
    return torch.rand(64, 16, requires_grad=requires_grad)


WAYS = ["called", "loaded", "inside", "to_backend"]


def make(net: nn.Module, way: str, options: str) -> Callable[..., Any]:
    """Returns a lowered module that is called from Python or from TorchScript."""
    scripted = scripted_copy(net)
    if way == "to_backend":
        return to_backend(scripted, options)
    lowered = aten_recompute.lower(scripted, options)
    if way == "loaded":
        return saved_and_loaded(lowered)
    return torch.jit.script(nn.Sequential(lowered, nn.Tanh())) if way == "inside" else lowered


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.lowered_only
def test_a_budget_that_cannot_be_kept_raises_one_line(way: str) -> None:
    options = '{"strategy": "budget", "memory_budget": 1000, "cost_model": "flops"}'
    module = make(Residual(), way, options)
    x = rows()
    for _ in range(2):
        line = line_of(lambda: module(x))
        assert "memory_budget: the peak cannot be kept under 1000 B; the smallest that can be reached is" in line
    with torch.no_grad():
        module(x)


def test_a_budget_that_several_regions_cannot_keep_raises_one_line() -> None:
    lowered = lowered_copy(Broken(), "budget", memory_budget=1e-6, cost_model="flops")
    assert "memory_budget: the peak cannot be kept under 0 B" in line_of(lambda: lowered(rows()))


def test_a_message_prints_different_sizes_differently() -> None:
    lowered = lowered_copy(Residual(), "budget", memory_budget=1000, cost_model="flops")
    x = rows()
    smallest = re.search(r"reached is ([\d.]+) KiB", line_of(lambda: lowered(x)))
    assert smallest is not None
    # What can be reached is rounded up to a tenth of a KiB. The limit is a few bytes below it.
    limit = int(float(smallest.group(1)) * 1024) - 110
    near = lowered_copy(Residual(), "budget", memory_budget=limit, cost_model="flops")
    sizes = re.search(r"under ([\d.]+ \w+); .* reached is ([\d.]+ \w+)", line_of(lambda: near(x)))
    assert sizes is not None
    assert sizes.group(1) != sizes.group(2)


def test_budgets_that_exclude_each_other_raise_one_line() -> None:
    net = ConvNet()
    x = torch.rand(4, 3, 8, 8)
    refusal = line_of(lambda: lowered_copy(net, "budget", memory_budget=1000, cost_model="flops")(x))
    match = re.search(r"\(([\d.]+) of", refusal)
    assert match is not None
    share = float(match.group(1)) * 1.01
    lowered = lowered_copy(net, "budget", memory_budget=share, time_budget=1.0, cost_model="flops")
    assert "no plan keeps both" in line_of(lambda: lowered(x))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.lowered_only
def test_a_plan_for_another_model_raises_one_line(way: str, tmp_path: Path) -> None:
    planned = lowered_copy(Residual(), "all", profile=True)
    planned(rows())
    aten_recompute.save_plan(planned, tmp_path / "plan.json")
    module = make(nn.Sequential(nn.Linear(16, 16), nn.Tanh()), way, f'{{"plan": "{tmp_path / "plan.json"}"}}')
    x = rows()
    assert "plan: made for another model, or by another version" in line_of(lambda: module(x))


@pytest.mark.parametrize("way", ["called", "loaded"])
@pytest.mark.lowered_only
def test_fullgraph_raises_one_line(way: str) -> None:
    module = make(Broken(), way, '{"strategy": "all", "fullgraph": true}')
    line = line_of(lambda: module(rows()))
    assert "fullgraph: forward has 2 regions instead of one; breaks: prim::Print" in line


@pytest.mark.parametrize("way", ["lower", "to_backend", "tags"])
def test_a_layer_pattern_that_matches_nothing_is_refused_by_lower(way: str) -> None:
    scripted = scripted_copy(Residual())
    spec = '{"strategy": "layers", "pattern": "towers"}'
    if way == "lower":
        line = line_of(lambda: aten_recompute.lower(scripted, spec))
    elif way == "to_backend":
        line = line_of(lambda: to_backend(scripted, spec))
    else:
        scripted = torch.jit.script(Unused())
        aten_recompute.inject_layer_tags(scripted, "towers")
        line = line_of(lambda: aten_recompute.lower(scripted, "layers"))
    assert 'layer pattern "towers" matches no module path; the modules that run are ' in line
    assert ("blocks" in line) == (way != "tags")


class Unused(nn.Module):
    """Has a module that its method does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.towers = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"a": 1}, 'plan: not a plan file, which save_plan() writes and which has the keys "format" and "regions"'),
        ({"format": "aten_recompute.plan/1", "regions": 5}, 'plan: "regions" is no list of objects'),
        ({"format": "aten_recompute.plan/9", "regions": []}, 'plan: "format" is "aten_recompute.plan/9", expected'),
        ("missing.json", 'key "plan": got "missing.json", accepted is the path of a file that save_plan() wrote'),
    ],
)
@pytest.mark.parametrize("way", ["lower", "to_backend", "environment"])
def test_a_plan_that_is_none_is_refused_by_lower(
    plan: Any, message: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = scripted_copy(Residual())
    if way == "lower":
        line = line_of(lambda: aten_recompute.lower(scripted, plan=plan))
    elif way == "to_backend":
        line = line_of(lambda: to_backend(scripted, json.dumps({"plan": plan})))
    else:
        if isinstance(plan, str):
            return  # a RECOMPUTE that cannot be read logs a warning
        monkeypatch.setenv("RECOMPUTE", json.dumps({"plan": plan}))
        line = line_of(lambda: aten_recompute.lower(scripted))
    assert message in line


def test_a_method_that_does_not_exist_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r'^the module has no method "forwrad" to lower; did you mean "forward"\?$'):
        lowered_copy(Residual(), "all", methods="forwrad")


@pytest.mark.parametrize("kind", ["path", "text", "file"])
def test_a_file_that_is_cut_short_is_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    lowered_copy(Residual(), "segments").save(str(path))
    path.write_bytes(path.read_bytes()[:-100])
    with open(path, "rb") as file:
        given: Any = {"path": path, "text": str(path), "file": file}[kind]
        line = line_of(lambda: aten_recompute.load(given))
    assert re.fullmatch(rf"aten_recompute: cannot load {re.escape(str(path))}: .*reader failed.*", line, re.IGNORECASE)
    assert "miniz" not in line


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"aten_recompute/1", b"aten_recompute/9", r"newer aten_recompute \(format 9, .* update the library"),
        (b'"segments"', b'"segmentz"', 'invalid spec: key "strategy": got "segmentz", accepted is one of'),
    ],
    ids=["format", "strategy"],
)
@pytest.mark.parametrize("from_memory", [False, True], ids=["file", "buffer"])
@pytest.mark.lowered_only
def test_a_file_that_cannot_be_read_raises_one_line(
    old: bytes, new: bytes, message: str, from_memory: bool, tmp_path: Path
) -> None:
    lowered_copy(Residual(), "segments").save(str(tmp_path / "net.pt"))
    with zipfile.ZipFile(tmp_path / "net.pt") as before, zipfile.ZipFile(tmp_path / "new.pt", "w") as after:
        for item in before.infolist():
            after.writestr(item.filename, before.read(item).replace(old, new))

    def load() -> None:
        if from_memory:
            with open(tmp_path / "new.pt", "rb") as file:
                torch.jit.load(file)
        else:
            torch.jit.load(str(tmp_path / "new.pt"))

    assert re.search(message, line_of(load))


def test_other_errors_are_those_of_torchscript() -> None:
    """They have the source line of the original module."""
    lowered = lowered_copy(Residual())
    with pytest.raises(RuntimeError, match=r"linear\.py(.|\n)*mat1 and mat2 shapes cannot be multiplied"):
        lowered(torch.rand(2, 3))

    def fail(x: Tensor) -> Tensor:
        if x.dim() == 1:
            raise ValueError("no rows")
        return x

    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return fail(x)

    with pytest.raises(torch.jit.Error, match="no rows"):
        torch.jit.script(Fails())(torch.rand(2))


class ChecksWhatIsKnown(nn.Module):
    """Raises by what is known when the method is compiled."""

    def forward(self, x: Tensor, mask: Tensor | None, checks_mode: bool) -> Tensor:
        if mask is None:
            raise ValueError("a mask is needed")
        if checks_mode:
            assert not self.training, "evaluation only"
        return x * mask


@pytest.mark.parametrize("how", ["lower", "enable"])
def test_a_method_raises_its_own_message(how: str) -> None:
    stock = torch.jit.script(ChecksWhatIsKnown())
    module: Any = torch.jit.script(ChecksWhatIsKnown())
    if how == "lower":
        module = aten_recompute.lower(module, "none")
    else:
        aten_recompute.enable(module, "none")
    x = torch.ones(3)
    for arguments, message in (((x, None, False), "a mask is needed"), ((x, x, True), "evaluation only")):
        for each in (stock, module):
            with pytest.raises(torch.jit.Error, match=message):
                each(*arguments)
    assert_same([module(x, x, False)], [x])


# ---- values of options ----


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ("600mb", 600_000_000),
        ("40%", 0.4),
        (numpy.float64(0.4), 0.4),
        (numpy.float32(0.5), 0.5),
        (numpy.int64(10**8), 10**8),
        (torch.tensor(0.5), 0.5),
    ],
    ids=repr,
)
def test_a_memory_budget_may_be_written_in_several_ways(given: Any, read: float) -> None:
    lowered = lowered_copy(Residual(), "budget", memory_budget=given)
    assert aten_recompute.report(lowered)["methods"][0]["options"]["memory_budget"] == read


@pytest.mark.parametrize("given", ["600M", "0%", "140%", float("nan"), float("inf"), True, [0.4], 0, 1.5], ids=repr)
def test_another_memory_budget_is_refused_with_the_units(given: Any) -> None:
    line = line_of(lambda: lowered_copy(Residual(), "budget", memory_budget=given))
    assert 'key "memory_budget": got ' in line
    assert line.endswith(" (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)")


@pytest.mark.parametrize("ops", [("gelu",), {"gelu"}, numpy.array(["gelu"])], ids=["tuple", "set", "array"])
def test_a_list_may_be_of_another_type(ops: Any) -> None:
    lowered = lowered_copy(Residual(), "ops", ops=ops)
    assert aten_recompute.report(lowered)["methods"][0]["options"]["ops"] == ["gelu"]


def test_a_plan_may_be_a_path_object(tmp_path: Path) -> None:
    planned = lowered_copy(Residual(), "segments")
    planned(rows()).sum().backward()
    aten_recompute.save_plan(planned, tmp_path / "plan.json")
    lowered_copy(Residual(), plan=tmp_path / "plan.json")


def test_an_option_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="an option is a number, text, a list or a dict, not complex"):
        lowered_copy(Residual(), "budget", memory_budget=1j)


# ---- the library itself ----


def import_with(library: Path) -> str:
    """Returns the last line that a new process writes when it imports the package with this library."""
    package = Path(aten_recompute.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", "import aten_recompute"],
        env={**os.environ, "RECOMPUTE_LIBRARY": str(library), "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("kind", ["empty", "text", "header only", "cut short", "damaged", "other torch"])
def test_a_library_that_cannot_be_loaded_raises_one_line(kind: str, tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    content = aten_recompute.library_path().read_bytes()
    stamp = b"aten_recompute was built for torch "
    own = stamp + torch.__version__.split("+")[0].encode()
    assert content.count(own) == 1
    library.write_bytes(
        {
            "empty": b"",
            "text": b"not a library",
            "header only": content[:30],
            "cut short": content[:5000],
            "damaged": content[:4] + b"\xff" + content[5:],
            "other torch": content.replace(own, stamp + b"1.99.0" + b" " * (len(own) - len(stamp) - 6)),
        }[kind]
    )
    line = import_with(library)
    assert line.startswith(f"ImportError: aten_recompute: {library} ")
    assert line.endswith(": build it with `pip install --no-build-isolation .` or `make build`")
    reason = {
        "empty": "is empty",
        "text": "is no shared library",
        "header only": "is cut short",
        "cut short": "is cut short",
        "damaged": f"cannot be loaded with torch {torch.__version__} (",
        "other torch": f"was built for torch 1.99.0, but this is torch {torch.__version__}",
    }[kind]
    assert reason in line


@pytest.mark.skipif(shutil.which("readelf") is None, reason="binutils is not installed")
def test_the_library_needs_only_libtorch_and_the_system() -> None:
    command = ["readelf", "--dynamic", "--wide", str(aten_recompute.library_path())]
    needed = re.findall(r"NEEDED.*\[(.+)\]", subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert "libtorch_cpu.so" in needed
    if any(re.match("lib[at]san", name) for name in needed):
        pytest.skip("a build with sanitizers needs their libraries, too")
    allowed = r"lib(torch|c10)(_cpu|_cuda)?\.so|lib(stdc\+\+|gcc_s|c|m|dl|rt|pthread)\.so\.\d|ld-linux.*"
    assert [name for name in needed if not re.fullmatch(allowed, name)] == []


def import_from(package: Path, libraries: list[str]) -> subprocess.CompletedProcess[str]:
    """Imports a copy of the package that has the present library as the one for each of these versions of torch."""
    shutil.copytree(Path(aten_recompute.__file__).parent, package, ignore=shutil.ignore_patterns("lib", "__pycache__"))
    for version in libraries:
        folder = package / "lib" / f"torch-{version}"
        folder.mkdir(parents=True)
        (folder / "libaten_recompute.so").symlink_to(aten_recompute.library_path())
    environment = {key: value for key, value in os.environ.items() if not key.endswith("RECOMPUTE_LIBRARY")}
    return subprocess.run(
        [sys.executable, "-c", "import aten_recompute; print(aten_recompute.library_path())"],
        env={**environment, "PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_takes_the_library_for_the_present_torch(tmp_path: Path) -> None:
    present = ".".join(torch.__version__.split(".")[:2])
    package = tmp_path / "site" / "aten_recompute"
    done = import_from(package, ["1.98", present, "1.99"])
    assert done.stderr == ""
    assert done.stdout.strip() == str(package / "lib" / f"torch-{present}" / "libaten_recompute.so")


def test_a_package_without_a_library_for_the_present_torch_names_the_versions(tmp_path: Path) -> None:
    package = tmp_path / "site" / "aten_recompute"
    done = import_from(package, ["1.100", "1.99"])
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: aten_recompute: this is torch {torch.__version__}, and {package} has a library for torch 1.99, "
        "1.100 only: install one of these versions, or build the library for yours from the source of aten_recompute "
        "with `pip install --no-build-isolation .`"
    )


@pytest.mark.skipif(shutil.which("nm") is None, reason="binutils is not installed")
def test_the_library_shows_nothing_of_what_it_logs_with() -> None:
    """A program may use another version of spdlog or fmt, whose functions would be mixed up with these."""
    command = ["nm", "-DC", "--defined-only", str(aten_recompute.library_path())]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert any(symbol.endswith(" aten_recompute_torch_version") for symbol in symbols)
    assert [symbol for symbol in symbols if re.search(r" (typeinfo for |vtable for )?(spdlog|fmt)::", symbol)] == []


# ---- words that match nothing ----


def warnings_of(lowered: torch.jit.ScriptModule, capfd: pytest.CaptureFixture[str]) -> list[str]:
    capfd.readouterr()
    for _ in range(2):
        lowered(rows())
    lowered.eval()(rows())
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("strategy", "options", "unmatched", "there"),
    [
        ("names", {"keywords": ["rleu", "gelu"]}, "rleu;", "gelu_"),
        ("names", {"keywords": ["%softmax"]}, "%softmax;", "gelu_"),
        ("ops", {"ops": ["aten::rleu", "gelu"]}, "rleu;", "gelu"),
        ("ops", {"ops": ["gleu"]}, "gleu;", 'did you mean "gelu"?'),
        ("names", {"keywords": ["%linaer"]}, "%linaer;", 'did you mean "linear_"?'),
        ("ops", {"ops": ["soft", "max"]}, "max, soft;", "gelu"),
    ],
)
def test_words_that_match_nothing_are_warned_about(
    strategy: str, options: dict[str, Any], unmatched: str, there: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (line,) = warnings_of(lowered_copy(Residual(), strategy, **options), capfd)
    assert "warning" in line.lower()
    assert strategy in line
    words, _, names = line.partition("; there are: ")
    assert f"matches {unmatched}" in words + ";"
    assert there in names


@pytest.mark.parametrize(
    ("strategy", "options"), [("names", {"keywords": ["gelu"]}), ("ops", {"ops": ["gelu", "linear"]})]
)
def test_words_that_match_give_no_warning(
    strategy: str, options: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert warnings_of(lowered_copy(Residual(), strategy, **options), capfd) == []


def test_a_word_that_matches_in_one_region_gives_no_warning(capfd: pytest.CaptureFixture[str]) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.layer(x))
            print("between")
            return torch.sigmoid(self.layer(h)).square()

    assert warnings_of(lowered_copy(Two(), "ops", ops=["sigmoid"]), capfd) == []


def test_calls_that_a_plan_file_does_not_cover_run_unplanned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Evaluation and frozen layers do not make another model. Such calls run unplanned, with one warning."""
    net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(64, 16)
    first = lowered_copy(net, "budget", memory_budget=0.9)
    first(x).square().sum().backward()
    path = tmp_path / "plan.json"
    aten_recompute.save_plan(first, path)

    lowered = lowered_copy(net, plan=str(path))
    for kind in ("training", "evaluation", "frozen", "training"):
        results = []
        for module in (net, lowered):
            module.train(kind != "evaluation")
            weight = dict(module.named_parameters())["3.weight"]
            weight.requires_grad_(kind != "frozen")
            parameters = [p for p in module.parameters() if p.requires_grad]
            torch.manual_seed(3)
            results.append(torch.autograd.grad(module(x).square().sum(), parameters))
            weight.requires_grad_(True)
        assert_same(list(results[1]), list(results[0]))
    assert capfd.readouterr().err.count("a call of another kind than those planned for") == 1

    other = lowered_copy(nn.Sequential(nn.Linear(16, 5), nn.Tanh(), nn.Linear(5, 4)), plan=str(path))
    with pytest.raises(RuntimeError, match="made for another model"):
        other(x).sum().backward()
