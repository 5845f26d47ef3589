"""What the package needs of TorchScript in Python, without the deprecated functions of ``torch.jit``.

Those warn that TorchScript is deprecated. A user hears that from the calls in the user's own code, and not from calls
of this package, which no user can change.
"""

import io
import os
from typing import IO, Any

import torch


def wrapped(module: Any) -> torch.jit.ScriptModule:
    """Returns a ``torch._C.ScriptModule`` as Python uses it."""
    # The name is looked up here, where aten_recompute.enable() puts a function of its own to see what is loaded.
    made: torch.jit.ScriptModule = torch.jit._serialization.wrap_cpp_module(module)  # type: ignore[no-untyped-call]
    return made


def imported(file: str | os.PathLike[str] | IO[bytes], map_location: str | torch.device | None = None) -> Any:
    """Returns the ``torch._C.ScriptModule`` in a file that TorchScript saved.

    Raises:
        ValueError: there is no such file, or ``map_location`` is no device.
        RuntimeError: the file is damaged or no saved module.
    """
    device: Any = torch.jit._serialization.validate_map_location(map_location)  # type: ignore[no-untyped-call]
    unit: Any = torch._C.CompilationUnit()
    extra_files: dict[str, Any] = {}
    if isinstance(file, str | os.PathLike):
        if not os.path.exists(file):
            raise ValueError(f"The provided filename {file} does not exist")
        if os.path.isdir(file):
            raise ValueError(f"The provided filename {file} is a directory")
        read: Any = torch._C.import_ir_module
        return read(unit, os.fspath(file), device, extra_files, False)
    read = torch._C.import_ir_module_from_buffer
    return read(unit, file.read(), device, extra_files, False)


def imported_copy(of: Any) -> Any:
    """Returns a ``torch._C.ScriptModule`` made from what a scripted module or function is when it is saved."""
    return imported(io.BytesIO(of.save_to_buffer()))


def scripted(function: Any) -> Any:
    """Returns a Python function as a ``torch.jit.ScriptFunction``.

    Raises:
        Exception: TorchScript does not compile it.
    """
    # torch.jit.script() warns, and calls this.
    script: Any = torch.jit._script
    return script._script_impl(function)
