"""Plans modules and functions where they are, without making another module."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import torch
from typing_extensions import Unpack

from ._errors import NotEnabledError, checked
from ._layers import LAYER_PATTERN
from ._options import LowerOptions, Strategy, spec_of
from ._targets import Target, handle_of, script_target

_ours = torch.ops.aten_recompute


class _Default(threading.local):
    """How deep this thread is inside of PyTorch's functions that make modules; they call each other."""

    depth = 0


def _enable(target: Target, spec: str, methods: list[str], pattern: str) -> None:
    checked(_ours.enable, handle_of(target), spec, methods, pattern)
    if isinstance(target, torch.jit.ScriptModule):
        # The library knows the module by a weak pointer, which keeps its parameters in memory until it is forgotten.
        # The last attribute has it forgotten when it goes. An object of C++ goes after the attributes before it, which
        # one with __del__ would not do where the module is part of a cycle.
        for name in target._c._method_names():
            getattr(target, name)  # becomes an attribute, and keeps the module alive
        target.__dict__.setdefault("_aten_recompute_last", torch.classes.aten_recompute.LastAttribute())


class _Everything:
    """What is scripted, traced or loaded from now on is enabled, while ``spec`` is set."""

    def __init__(self) -> None:
        self.spec: str | None = None
        self.methods: list[str] = []
        self._thread = _Default()
        self._wrapped = False

    def start(self, spec: str, methods: list[str]) -> None:
        checked(_ours.check_options, spec)
        self.spec, self.methods = spec, methods
        if not self._wrapped:
            self._wrapped = True
            # All ways of making a module or a function lead through these, whatever name a program imported.
            self._wrap(torch.jit._script, "_script_impl", added_frames=1)
            self._wrap(torch.jit._trace, "_trace_impl")
            self._wrap(torch.jit._trace, "trace_module")
            self._wrap(torch.jit._serialization, "wrap_cpp_module")
            torch.jit.trace_module = torch.jit._trace.trace_module

    def stop(self) -> None:
        self.spec = None

    def _wrap(self, owner: Any, name: str, added_frames: int = 0) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            if added_frames:  # names in source are looked up in the frame of the caller
                kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + added_frames
            self._thread.depth += 1
            try:
                made = original(*args, **kwargs)
            finally:
                self._thread.depth -= 1
            is_new = all(made is not each for each in (*args, *kwargs.values()))
            if self.spec is not None and self._thread.depth == 0 and is_new:
                self._enable_new(made, self.spec)
            return made

        setattr(owner, name, make)

    def _enable_new(self, made: Any, spec: str) -> None:
        if isinstance(made, torch.jit.ScriptFunction):
            methods = []
        elif isinstance(made, torch.jit.ScriptModule):
            methods = [name for name in self.methods if made._c._has_method(name)]
            if not methods or _ours.holds_lowered(made._c):
                return
        else:
            return  # a class, a dict, a list
        if not _ours.is_enabled(handle_of(made)):
            _enable(made, spec, methods, "")


_everything = _Everything()


def _is_target(given: Any) -> bool:
    return given is not None and not isinstance(given, str | dict)


@overload
def enable(
    target: Target,
    strategy: Strategy = None,
    *,
    methods: str | Sequence[str] = ("forward",),
    **options: Unpack[LowerOptions],
) -> None: ...


@overload
def enable(
    target: Strategy = None, *, methods: str | Sequence[str] = ("forward",), **options: Unpack[LowerOptions]
) -> None: ...


def enable(
    target: Any = None,
    strategy: Strategy = None,
    *,
    methods: str | Sequence[str] = ("forward",),
    **options: Unpack[LowerOptions],
) -> None:
    """Makes a module or a function run planned where it is.

    ``lower`` returns another module; this changes none. The object stays the same, with its class, submodules, hooks
    and code. What ``save`` writes is plain TorchScript, which loads where this library is not. Methods that call
    enabled ones run them planned, too. Other objects of the class, and copies that ``copy.deepcopy`` makes, are not
    enabled; copies that ``aten_recompute.clone`` makes are.

    Args:
        target: a scripted, traced or loaded module, or a function that was scripted or traced. If it is enabled
            already, it is enabled anew with these options. If the first argument is a strategy, or only options are
            given, everything that the process scripts, traces or loads from now on is enabled, until
            ``disable()``; methods that are named and that a module lacks are passed over there.
        strategy: decides what the backward recomputes, as for ``lower``.
        methods: the names of the methods to enable, or a single name. It means nothing for a function.
        **options: the options of the strategy, by name, as for ``lower``.

    No other thread may run the target, or what calls it, during this call.

    Raises:
        InvalidOptionError: an option is invalid.
        NoSuchMethodError: the module has no such method.
        ValueError: the module is lowered or contains a lowered module. Nothing is enabled in any of these cases.
        TypeError: ``target`` is neither a module or a function of TorchScript nor a strategy.
    """
    names = [methods] if isinstance(methods, str) else list(methods)
    if not _is_target(target):
        if strategy is not None:
            raise TypeError("enable takes one strategy: enable(target, strategy), or enable(strategy) for everything")
        _everything.start(spec_of(target, options), names)
        return
    target = script_target(target, "enable")
    pattern = target.__dict__.get(LAYER_PATTERN, "") if isinstance(target, torch.jit.ScriptModule) else ""
    _enable(target, spec_of(strategy, options), names, pattern)


def disable(target: Target | None = None) -> None:
    """Undoes ``enable``: the module or function runs as before, by the very graphs that it had.

    Args:
        target: what was enabled. Without it, what is scripted, traced or loaded from now on is not enabled any more;
            what is enabled already stays so.

    Raises:
        NotEnabledError: ``target`` is not enabled.
        TypeError: ``target`` is neither a module nor a function of TorchScript.
    """
    if target is None:
        _everything.stop()
    elif not _ours.disable(handle_of(script_target(target, "disable"))):
        raise NotEnabledError("disable: this is not enabled (aten_recompute.enable does that)")


@contextlib.contextmanager
def enabled(
    target: Any = None,
    strategy: Strategy = None,
    *,
    methods: str | Sequence[str] = ("forward",),
    **options: Unpack[LowerOptions],
) -> Iterator[None]:
    """Enables as ``enable`` does, for a block.

    With a target, that is disabled at the end of the block. Without one, what is scripted, traced or loaded inside of
    the block is enabled, and stays so afterward.

    Args:
        target: as for ``enable``.
        strategy: as for ``enable``.
        methods: as for ``enable``.
        **options: as for ``enable``.

    Raises:
        ValueError: as ``enable`` does.
        TypeError: as ``enable`` does.
    """
    before = _everything.spec, _everything.methods
    enable(target, strategy, methods=methods, **options)
    try:
        yield
    finally:
        if _is_target(target):
            if _ours.is_enabled(handle_of(target)):
                disable(target)
        else:
            _everything.spec, _everything.methods = before
