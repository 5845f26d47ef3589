"""Lowers modules and undoes it, loads them, and reports what was compiled."""

import inspect
import json
import os
from collections.abc import Sequence
from typing import IO, Any

import torch
from typing_extensions import Unpack

from ._containers import act_as_containers
from ._enable import enable
from ._errors import PREFIX, checked, first_line
from ._files import write_whole
from ._layers import LAYER_PATTERN
from ._options import LowerOptions, Strategy, spec_of
from ._report import Report
from ._signatures import add_signatures
from ._targets import Target, handle_of, script_module, script_target
from ._torchscript import imported, imported_copy, wrapped


def _wrap(module: Any, like: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Returns a module of the library as Python uses it; ``like`` is the one that it was made from."""
    made: torch.jit.ScriptModule = torch.jit._recursive.wrap_cpp_module(module)  # type: ignore[no-untyped-call]
    act_as_containers(made)
    add_signatures(made, like)
    return made


def lower(
    module: torch.jit.ScriptModule,
    strategy: Strategy = None,
    *,
    methods: str | Sequence[str] = ("forward",),
    **options: Unpack[LowerOptions],
) -> torch.jit.ScriptModule:
    r"""Lowers a scripted or traced module, which then trains as before in less memory.

    Args:
        module: what ``torch.jit.script`` or ``torch.jit.trace`` returned. It is not changed. If it is lowered already,
            or contains lowered modules, they are planned anew together with the rest.
        strategy: decides what the backward recomputes and what is kept for it. Either a name, or all options as a dict
            or a JSON string: ``{"strategy": "layers", "start": 0, "stride": 2}``. Without a
            strategy, the environment variable ``RECOMPUTE`` (the same JSON) decides; if it is not set either, nothing
            is recomputed.
        methods: the names of the methods to lower, or a single name. Other methods remain as they are.
        **options: the options of the strategy, by name.

    ``LowerOptions`` lists the strategies and all options with what they accept, as ``help(lower)`` and docs/options.md
    do: those of single strategies, such as ``memory_budget`` of ``"budget"``, and those of every strategy, such as
    ``accumulate``.

    Returns:
        A module with the parameters, buffers and submodules of ``module`` under the same names. They are the same
        tensors, so an optimizer that was made before remains valid. After ``save``, ``torch.jit.load`` and
        ``torch::jit::load`` load it in any process that has loaded the library.

    Raises:
        InvalidOptionError: an option is invalid; the message names it and what is accepted. Or ``pattern`` matches no
            module that runs in ``module``.
        NoSuchMethodError: ``module`` has no such method.
        TypeError: ``module`` is not scripted or traced, or ``strategy`` or an option is of another type.
    """
    module = script_module(module, "lower")
    spec = spec_of(strategy, options)
    names = [methods] if isinstance(methods, str) else list(methods)
    pattern = module.__dict__.get(LAYER_PATTERN, "")
    return _wrap(checked(torch.ops.aten_recompute.lower, module._c, spec, names, pattern), module)


# The text of the options stands once, beside their types.
if lower.__doc__ is not None:  # as it is with -OO
    _summary, _options = (inspect.cleandoc(each.__doc__ or "") for each in (lower, LowerOptions))
    lower.__doc__ = _summary.replace("Returns:", _options.split("\n\n", 1)[1] + "\n\nReturns:", 1)


def unlower(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Returns the module as it was before it was lowered, with its present tensors and attributes.

    ``torch.jit.freeze`` does the same to a lowered module by itself.

    Args:
        module: a lowered module, or one that contains lowered modules at any depth. It is not changed.

    Returns:
        A module without lowered parts that shares its tensors with ``module``; ``module`` itself if nothing in it is
        lowered.

    Raises:
        TypeError: ``module`` is not scripted or traced.
    """
    module = script_module(module, "unlower")
    if not torch.ops.aten_recompute.holds_lowered(module._c):
        return module
    return _wrap(torch.ops.aten_recompute.unlower(module._c), module)


def load(
    path: str | os.PathLike[str] | IO[bytes], map_location: str | torch.device | None = None
) -> torch.jit.ScriptModule:
    """Loads a module that ``lower(...).save(path)`` wrote, as ``torch.jit.load`` does.

    In addition, lowered containers support indexing and iteration, and ``inspect.signature`` works on methods.

    Args:
        path: the path of the file, or an open file.
        map_location: the device for all tensors; by default the one from which they were saved.

    Raises:
        ValueError: there is no such file.
        RuntimeError: the file is damaged or no saved module; the message, one line, names the path.
    """
    loaded: torch.jit.ScriptModule
    try:
        loaded = wrapped(imported(path, map_location))
    except RuntimeError as error:
        reason = first_line(error).removeprefix(PREFIX).partition(". This is an internal miniz error")[0]
    else:
        act_as_containers(loaded)
        add_signatures(loaded)
        return loaded
    name = path if isinstance(path, str | os.PathLike) else getattr(path, "name", "the file")
    raise RuntimeError(f"{PREFIX}cannot load {name}: {reason}")


def clone(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    """Returns a copy of a module with tensors of its own, for an average of weights or a second training, say.

    ``copy.deepcopy`` does not make one of a scripted module, lowered or not: parameters of the copy are results of
    ``Tensor.clone``, which no optimizer accepts and whose gradients go on to the original; and copies of containers
    cannot be indexed.

    Args:
        module: a scripted or traced module; it may be lowered or contain lowered modules. It is not changed.

    Returns:
        A module with equal tensors on the same devices, the same ``requires_grad`` and ``training``, and no gradients.
        Parameters that were tied stay tied. What is lowered or enabled is so in the copy, and planned at its first
        call. The module is saved to memory in between, so it has to be one that can be saved.

    Raises:
        TypeError: ``module`` is not scripted or traced.
    """
    module = script_module(module, "clone")
    copy = wrapped(imported_copy(module))
    act_as_containers(copy)
    add_signatures(copy, module)
    if LAYER_PATTERN in module.__dict__:
        copy.__dict__[LAYER_PATTERN] = module.__dict__[LAYER_PATTERN]
    copies: dict[str, Any] = dict(copy.named_modules())
    for name, each in module.named_modules():
        if torch.ops.aten_recompute.is_enabled(each._c):
            for method in report(each)["methods"]:
                enable(copies[name], json.dumps(method["options"]), methods=method["method"])
    return copy


def report(lowered: Target) -> Report:
    """Reports what has been compiled so far. A region is compiled by the first call that needs a gradient.

    ``print(report(lowered))`` shows it as a text; ``to_html``, ``plot``, ``to_perfetto`` and ``to_memory_viz`` show the
    memory of a step (docs/instruments.md).

    Returns:
        A dict ``{"methods": [...]}``, where each method has

        - ``method``: its name, and ``options``: its strategy with all options;
        - ``specialisations``: one for each combination of ranks and types of the arguments;
        - ``unplanned_calls``: how many calls ran as plain TorchScript, without a plan, for each ``reason``: under
          a ``TorchDispatchMode``, a transform of ``torch.func`` or forward-mode differentiation.

        A specialization has

        - ``regions``: the parts of the method that are differentiated ahead of time, each with its ``variants``;
        - ``breaks``: the nodes that divide the method into regions, each with its ``reason`` and source ``location``;
        - ``plans``: predictions for the whole method, if several regions share a budget.

        A region has one variant for each set of inputs that required grad. Under a budget, further ones are added for
        sizes that need a plan of their own, and for each time that one call runs the region. A variant has

        - ``forward_operators`` and ``backward_operators``: how many operators run; ``stages``: how many autograd nodes
          the backward consists of;
        - ``saved`` and ``recomputed``: the names of the values;
        - ``banned``: what ``min_cut`` does not recompute, as pairs of a ``value`` and a ``reason``;
        - ``on_tape``: the operators without a gradient rule, which autograd differentiates inside of the region;
        - ``gradients_by``: the number of operators, by name, whose gradient comes from a ``rule`` of the library, from
          a ``user_rule``, and from the ``tape``;
        - ``channels_last``: whether images have their channels last in memory (``exact=False``), and ``arena``: the
          memory that the tensors of a step lie in (docs/memory.md).

        Variants and plans have predictions, which are 0 without a profile: ``predicted_peak_bytes`` of one step above
        the memory in use before it, ``peak_operator`` at that peak with its layer, source line and bytes,
        ``unplanned_peak_bytes`` without recomputation, ``predicted_saved_bytes`` between the forward and the backward,
        ``outside_bytes`` of these for operators outside of regions, ``predicted_seconds`` and ``unplanned_seconds`` of
        the forward and the backward, the ``profile_seconds`` and ``plan_seconds`` that compiling took, and the numbers
        of ``nodes`` and ``profiled_classes`` of operators. On a CPU, ``measured_peak_bytes`` follows once a step has
        been watched.

    Raises:
        NotLoweredError: the module is neither lowered nor enabled; of a function ``NotEnabledError``.
        TypeError: it is not scripted or traced.
    """
    handle = handle_of(script_target(lowered, "report"))
    compiled = json.loads(call_planned(torch.ops.aten_recompute.report, lowered, "report"))
    return Report(compiled, lambda tradeoff: str(torch.ops.aten_recompute.timeline(handle, tradeoff)))


def save_plan(lowered: Target, path: str | os.PathLike[str]) -> None:
    """Writes the plans of what has been compiled so far to a JSON file.

    ``lower(module, plan=path)`` follows them on any machine, without a search. The file names the saved values with
    their sizes in bytes, what is recomputed and when, and the predicted peak and time.

    Args:
        lowered: a lowered module whose strategy is ``budget``, ``min_cut`` or ``segments``, or that was lowered with
            ``profile=True``, after at least one training step.
        path: the path of the file. One that is there is replaced once the new one is complete.

    Raises:
        NotLoweredError: the module is neither lowered nor enabled; of a function ``NotEnabledError``.
        ValueError: no region has been compiled with a profile yet.
        TypeError: the module is not scripted or traced.
        OSError: the file cannot be written.
    """
    text = call_planned(torch.ops.aten_recompute.plan, lowered, "save_plan")
    if not json.loads(text)["regions"]:
        raise ValueError(
            "save_plan: nothing is planned yet: run a training step first, with strategy budget, min_cut or segments, "
            "or with profile=True"
        )
    write_whole(path, f"{text}\n".encode(), "save_plan")


def problems(lowered: Target) -> list[dict[str, Any]]:
    """Returns the planning problems of the regions that have been compiled with a profile.

    A region has a profile if its strategy considers costs (``segments``, ``min_cut``, ``budget``) or if
    ``profile=True`` was given.

    Returns:
        One dict per region, in the format ``aten_recompute.problem/1``: lists of nodes, values and storages, with
        bytes, seconds and floating-point operations. ``plan_problem`` accepts it.

    Raises:
        NotLoweredError: the module is neither lowered nor enabled; of a function ``NotEnabledError``.
        TypeError: it is not scripted or traced.
    """
    texts = call_planned(torch.ops.aten_recompute.problems, lowered, "problems")
    return [json.loads(text) for text in texts]


def call_planned(operator: Any, planned: Target, function: str) -> Any:
    """Calls an operator that takes what is lowered or enabled; ``function`` is the name for messages."""
    return checked(operator, handle_of(script_target(planned, function)))


def release_memory() -> None:
    """Gives back the memory that lowered modules keep between steps, as before a validation or at the end of training.

    The next step takes it anew. Memory of steps that are not over, because their backward may still come, stays.
    """
    torch.ops.aten_recompute.release_memory()
