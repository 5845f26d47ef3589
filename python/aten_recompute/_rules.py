"""Registers gradient rules, shapes and costs of operators that a user defines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ._errors import InvalidRuleError, checked, first_line
from ._torchscript import imported_copy, scripted

Function = Callable[..., Any]  # a torch.jit.ScriptFunction, or a function that torch.jit.script accepts


def register_rule(
    op: str,
    *,
    backward: Function | Mapping[str, Function] | None = None,
    forward: Function | None = None,
    extras: Sequence[str] = (),
    replay: Function | None = None,
    flops: Function | None = None,
    random: bool | None = None,
    recomputable: bool = True,
    replace: bool = False,
) -> None:
    """Registers how lowered modules differentiate an operator, and what else they need to know about it.

    An operator that autograd can differentiate needs no rule: it runs under ordinary autograd inside of a region, and
    is recomputed there as a whole. With a rule, the backward keeps only what the rule reads, in place of all that
    autograd would save, and a plan decides about each of these values.

        def backward(grad, result, scale: float):
            return grad * (scale - result * result / scale)

        aten_recompute.register_rule("mylib::scaled_tanh", backward=backward)

    Functions are scripted. Parameters without an annotation are tensors, and every parameter is bound by its name. A
    function may write to tensors that it made itself, but never to its arguments.

    Args:
        op: ``"namespace::name"`` or ``"namespace::name.overload"``. An operator has one rule, and one call gives all
            of it: whatever is left out is as if there were no rule.
        backward: one function that returns the gradient of each argument that is ``Tensor``, ``Optional[Tensor]`` or
            ``List[Tensor]``, in the order of the schema (``None`` for indices, which have no gradient). Or a dict that
            maps an argument, or several (``"x, weight"``), to the function that returns their gradients. Only those
            functions of a dict run whose gradients are asked for, in the order of the dict; to have the gradients of
            weights first frees activations earlier. Parameters can be

            - the operator's arguments, with the names and types of the schema;
            - ``grad``, ``grad1``, ...: the gradients of the outputs, with their shapes. An output that received no
              gradient has zeros, or None if the parameter is ``Optional[Tensor]``;
            - ``grads: List[Optional[Tensor]]``: the gradients of an output that is a list of tensors;
            - ``result``, ``result1``, ...: the outputs;
            - the names in ``extras``;
            - ``needs_<argument>: bool``: whether this gradient is asked for. An ``if`` on it costs nothing at run time.

            Results are treated as autograd treats gradients: None is zero, dimensions to which the argument can be
            broadcast are summed, and the dtype becomes that of the argument. Any other shape raises at run time.
        forward: a function that runs in place of the operator when a gradient is asked for. Its parameters are the
            operator's arguments and ``needs_<argument>``. It returns the operator's outputs, followed by the extras.
        extras: names for what ``forward`` returns beyond the outputs, so that ``backward`` can read it.
        replay: a function that computes the outputs again, bit for bit, for an operator whose second run must differ
            from the first one (statistics are not to be updated twice). Its parameters are the operator's arguments.
        flops: a function that returns the number of floating-point operations of one run, as an int or a float. A
            multiply-add counts as two. Its parameters are the operator's arguments and ``result``, ``result1``, ...;
            it may only read sizes and dtypes of tensors. Plans use the number with ``cost_model="flops"``. By default
            it is one per element of the results.
        random: whether the operator draws random numbers. If so, the random generator is reset to its earlier state
            before the operator is recomputed. By default the operator's tag ``nondeterministic_seeded`` decides;
            without the tag the generator's state is saved as a precaution (5 KB on a CPU).
        recomputable: whether the operator may run again. If not, it runs once, and what the backward needs of it is
            kept. Strategies that measure (``budget``, ``segments``, ``min_cut``) still run it on zeros.
        replace: whether an earlier rule for the operator, registered or built in, is replaced. If nothing else is
            given, the rule that was registered earlier is removed.

    A rule applies to what is compiled after its registration: methods that have run before keep the rules that they
    were compiled with. Saved modules contain no rules, so each process has to register its own; without one, the
    operator runs under autograd. Calls under autocast, and operators outside of regions (``report`` lists them with the
    reasons), are differentiated by autograd as well. The C++ interface is ``aten_recompute/register_rule.h``.

    Raises:
        InvalidRuleError: the message names the operator and the reason in one line: there is no such operator, it
            writes to its arguments or returns views of them, a function cannot be scripted, a parameter is none of the
            above, the results do not fit, or the operator already has a rule.
        TypeError: ``op`` is not a string, or a function is not a function.
    """
    _check_name("register_rule", op)
    given: list[tuple[str, Function | None]] = [("forward", forward), ("replay", replay), ("flops", flops)]
    if isinstance(backward, Mapping):
        given += [("backward:" + arguments, function) for arguments, function in backward.items()]
    else:
        given.append(("backward:", backward))
    roles, modules, parameters = [], [], []
    for role, function in given:
        if function is None:
            continue
        module, names = _scripted("register_rule", op, role.rstrip(":"), function)
        roles.append(role)
        parameters.append(names)
        modules.append(module)
    checked(
        torch.ops.aten_recompute.register_rule,
        op,
        roles,
        modules,
        parameters,
        list(extras),
        random,
        recomputable,
        replace,
    )


def register_shape(op: str, shape: Function, *, replace: bool = False) -> None:
    """Registers what an operator returns, for ``estimate`` and ``profile``, which do not run it.

        def shape(x, scale: float):
            return torch.empty_like(x)

        aten_recompute.register_shape("mylib::scaled_tanh", shape)

    An operator with a kernel for meta tensors (``torch.library.register_fake``) needs no such function.

    Args:
        op: ``"namespace::name"`` or ``"namespace::name.overload"``.
        shape: a function that is scripted and runs on meta tensors. Its parameters are the operator's arguments, with
            the names and types of the schema, and it returns the operator's outputs.
        replace: whether a function that was registered earlier is replaced.

    Raises:
        InvalidRuleError: as for ``register_rule``.
        TypeError: ``op`` is not a string, or ``shape`` is not a function.
    """
    _check_name("register_shape", op)
    module, names = _scripted("register_shape", op, "shape", shape)
    checked(torch.ops.aten_recompute.register_shape, op, module, names, replace)


def register_flops(op: str, flops: Function, *, replace: bool = False) -> None:
    """Registers how many floating-point operations one run of an operator takes.

    That is what ``register_rule(op, flops=...)`` does, for operators that need no rule otherwise.

    Args:
        op: ``"namespace::name"`` or ``"namespace::name.overload"``.
        flops: a function that is scripted. Its parameters are the operator's arguments and ``result``, ``result1``,
            ...; it may only read sizes and dtypes of tensors, and returns an int or a float.
        replace: whether a function that was registered earlier, here or with a rule, is replaced.

    Raises:
        InvalidRuleError: as for ``register_rule``.
        TypeError: ``op`` is not a string, or ``flops`` is not a function.
    """
    _check_name("register_flops", op)
    module, names = _scripted("register_flops", op, "flops", flops)
    checked(torch.ops.aten_recompute.register_flops, op, module, names, replace)


def _check_name(who: str, op: str) -> None:
    if not isinstance(op, str):  # callers without a type checker pass torch.ops.mylib.scaled_tanh
        raise TypeError(f'{who} takes an operator\'s name, "namespace::name", not {type(op).__name__}')


def _scripted(who: str, op: str, role: str, function: Function) -> tuple[Any, list[str]]:
    """Returns ``function`` as a module with it as ``forward``, and the names of its parameters."""
    compiled = _script_function(who, op, role, function)
    # An operator of the library accepts modules only; a function that is saved is loaded as a module.
    return imported_copy(compiled), [argument.name for argument in compiled.schema.arguments]


def _script_function(who: str, op: str, role: str, function: Function) -> Any:
    """Returns ``function`` as a torch.jit.ScriptFunction."""
    if isinstance(function, torch.jit.ScriptFunction):
        return function
    if not callable(function) or isinstance(function, torch.nn.Module):
        raise TypeError(f"{who}: {op}: {role} is a function, not {type(function).__name__}")
    try:
        return scripted(function)
    except Exception as error:  # an error of TorchScript has many lines; it remains visible as the cause
        invalid = InvalidRuleError(f"{who}: {op}: {role} cannot be scripted: {first_line(error)}")
        invalid.op = op
        raise invalid from error
