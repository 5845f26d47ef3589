"""register_rule: gradient rules for operators of the user's own."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

# A scripted function, or one that torch.jit.script takes.
Function = torch.jit.ScriptFunction | Callable[..., Any]


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
    """Tells lowered modules how to differentiate an operator, and what else they cannot know of it.

    None is needed for an operator that autograd can differentiate: it runs under ordinary autograd
    inside of a region, and is computed again there. A rule lets a plan look inside: the backward captures
    what the rule reads, instead of all that autograd would save, and is planned like everything else.

        def backward(grad, result, scale: float):
            return grad * (scale - result * result / scale)

        aten_recompute.register_rule("mylib::scaled_tanh", backward=backward)

    Functions are scripted: parameters without an annotation are tensors, and each is bound by its name. They
    may write to what they made themselves, never to what they are given.

    Args:
        op: ``"namespace::name"`` or ``"namespace::name.overload"``. An operator has one rule, all of it from
            one call. What is not given is as if there were no rule.
        backward: one function that returns the gradient of each argument that is ``Tensor``,
            ``Optional[Tensor]`` or ``List[Tensor]``, in the order of the schema (``None`` for indices, which
            have none); or a dict from an argument, or several (``"x, weight"``), to the function that returns
            their gradients. Of a dict only those functions run whose gradients are asked for, in its order:
            those of weights first let go of activations earlier. Parameters are any of

            - the operator's arguments, by the schema's names and types;
            - ``grad``, ``grad1``, ...: gradients of the outputs, shaped as these. Where nothing came back for
              an output it is zeros, or None for a parameter that is ``Optional[Tensor]``;
            - ``grads: List[Optional[Tensor]]``: that of an output which is a list of tensors;
            - ``result``, ``result1``, ...: the outputs;
            - the names in ``extras``;
            - ``needs_<argument>: bool``: is this gradient asked for. An ``if`` on it costs nothing.

            Gradients are treated as eager's engine treats them: None is zero, sizes to which the argument
            can be broadcast are summed up, the dtype becomes the argument's; other sizes raise when it runs.
        forward: runs in the operator's place where a gradient is asked for. Parameters are the operator's
            arguments and ``needs_<argument>``; it returns the operator's outputs, then the extras.
        extras: names for what ``forward`` returns beyond the outputs, for ``backward`` to read.
        replay: computes the outputs again, bit for bit, where that must differ from the first run (no second
            update of statistics). Parameters are the operator's arguments.
        flops: floating-point operations of one run, an int or a float; a multiply-add counts as two.
            Parameters are the operator's arguments and ``result``, ``result1``, ...; only sizes and dtypes may
            be read of tensors. Plans use it with ``cost_model="flops"``. Without it: one per element of the
            results.
        random: whether the operator draws random numbers: the generator is then put back to where it was when
            the operator runs again. None: as its tag ``nondeterministic_seeded`` says; without that tag the
            generator's state is noted to be on the safe side (5 KB on a CPU).
        recomputable: False: it runs once, and what the backward needs of it is kept. Strategies that measure
            (``budget``, ``segments``, ``min_cut``) still run it on zeros.
        replace: takes the place of a rule that was registered before, or of one that the library has. With nothing else
            given, what was registered before is removed.

    A rule holds for what is compiled from now on: methods that have run before keep to what they were
    compiled with. Saved modules hold no rules: register them in each process, or the operator runs under
    autograd there. What runs outside of regions (``report`` says what, and why) and calls under autocast are
    left to autograd, too. From C++: ``aten_recompute/register_rule.h``.

    Raises:
        ValueError: one line that names the operator and what is wrong: there is no such operator, it writes to
            its arguments or returns views of them, a function cannot be scripted, a parameter is none of the above, results do not
            fit, or there is a rule already.
        TypeError: something that is no function, or no name.
    """
    if not isinstance(op, str):
        raise TypeError(f'register_rule takes an operator\'s name, "namespace::name", not {type(op).__name__}')
    given: list[tuple[str, Function | None]] = [("forward", forward), ("replay", replay), ("flops", flops)]
    if isinstance(backward, Mapping):
        given += [("backward:" + arguments, function) for arguments, function in backward.items()]
    else:
        given.append(("backward:", backward))
    roles, modules, parameters = [], [], []
    for role, function in given:
        if function is None:
            continue
        scripted = _scripted(op, role.rstrip(":"), function)
        roles.append(role)
        parameters.append([argument.name for argument in scripted.schema.arguments])
        # Only modules cross the border to C++; a function is saved as one.
        modules.append(torch.jit.load(io.BytesIO(scripted.save_to_buffer()))._c)
    try:
        torch.ops.aten_recompute.register_rule(
            op, roles, modules, parameters, list(extras), random, recomputable, replace
        )
    except (RuntimeError, ValueError) as error:
        if "register_rule: " in str(error):
            raise ValueError(str(error).splitlines()[0]) from None
        raise


def _scripted(op: str, role: str, function: Function) -> torch.jit.ScriptFunction:
    if isinstance(function, torch.jit.ScriptFunction):
        return function
    if not callable(function) or isinstance(function, torch.nn.Module):
        raise TypeError(f"register_rule: {op}: {role} is a function, not {type(function).__name__}")
    try:
        return torch.jit.script(function)
    except Exception as error:  # its own errors are several lines with the source; they stay visible as the cause
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ValueError(f"register_rule: {op}: {role} cannot be scripted: {reason}") from error
