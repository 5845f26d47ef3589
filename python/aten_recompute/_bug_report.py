"""Writes what somebody needs to look into an error of a planned module: one file, without tensors."""

import io
import json
import os
import platform
import zipfile
from collections.abc import Iterator
from typing import Any

import torch

from ._files import write_whole
from ._lower import call_planned, problems, report, unlower
from ._targets import Target, script_target

FORMAT = "aten_recompute.bug_report/1"


def save_bug_report(target: Target, path: str | os.PathLike[str]) -> None:
    """Writes a zip file with all that is known about a planned module or function, but no tensors.

    The file holds ``versions.json`` (of this library, PyTorch, Python and the system, with the environment variables
    that begin with ``RECOMPUTE``), ``report.json`` (``report(target)``, with the options), ``graphs/<method>.txt`` (the
    TorchScript graph of each planned method, with source lines), ``tensors.json`` (names, shapes and types of
    parameters and buffers, no values), ``plan.json`` and ``problems/<n>.json`` (docs/report.md; only what was compiled
    with a profile).

    Names of modules, paths of source files, and constants of the program are in it; numbers of parameters, buffers,
    inputs and results are not.

    Args:
        target: a module or function that is lowered or enabled. It need not have run, and is not run.
        path: the path of the file, which is complete or not written at all; one of that name is replaced.

    Raises:
        NotLoweredError: the module is neither lowered nor enabled; of a function ``NotEnabledError``.
        TypeError: it is not scripted or traced.
        OSError: the file cannot be written; the message names it and the reason.
    """
    target = script_target(target, "save_bug_report")
    compiled = report(target).to_dict()
    methods = [method["method"] for method in compiled["methods"]]
    content: dict[str, str] = {
        "versions.json": _json(_versions()),
        "report.json": _json(compiled),
        "tensors.json": _json(list(_tensors(target))),
        "plan.json": call_planned(torch.ops.aten_recompute.plan, target, "save_bug_report") + "\n",
    }
    content.update({f"graphs/{name}.txt": graph for name, graph in _graphs(target, methods)})
    content.update({f"problems/{index}.json": _json(each) for index, each in enumerate(problems(target))})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    write_whole(path, buffer.getvalue(), "save_bug_report")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"


def _versions() -> dict[str, Any]:
    ours: Any = torch.ops.aten_recompute
    return {
        "format": FORMAT,
        "aten_recompute": ours.version(),
        "torch": torch.__version__,
        "torch_build": torch.__config__.show(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda if torch.cuda.is_available() else None,
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("RECOMPUTE")},
    }


def _tensors(target: Target) -> Iterator[dict[str, Any]]:
    if isinstance(target, torch.jit.ScriptFunction):
        return
    for kind, named in (("parameter", target.named_parameters()), ("buffer", target.named_buffers())):
        for name, tensor in named:
            yield {
                "name": name,
                "kind": kind,
                "shape": list(tensor.shape),
                "stride": list(tensor.stride()) if tensor.layout is torch.strided else None,
                "dtype": str(tensor.dtype),
                "device": str(tensor.device),
                "requires_grad": tensor.requires_grad,
            }


def _graphs(target: Target, methods: list[str]) -> Iterator[tuple[str, str]]:
    if isinstance(target, torch.jit.ScriptFunction):
        yield methods[0], str(target.inlined_graph)
        return
    plain = unlower(target)
    for name in methods:
        yield name, str(plain._c._get_method(name).inlined_graph)
