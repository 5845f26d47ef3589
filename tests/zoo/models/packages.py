"""Makes packages importable whose wheels hold a library for CUDA. The models in them are plain Python."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

torch_library: Any = torch.library
load_library: Any = torch.ops.load_library


def _loads(package: str, library: str) -> bool:
    """Returns whether the library of a package can be loaded; True where the package is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return True
    try:
        load_library(str(Path(spec.origin).parent / library))
    except OSError:
        return False
    return True


def _declare_operators_of_torchvision() -> Any:
    """Declares the operators that Python code of torchvision names. No model here runs them."""
    library = torch_library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor")
    return library


def _without_extension_of_torchaudio() -> None:
    extension: Any = ModuleType("torchaudio._extension")
    extension._IS_TORCHAUDIO_EXT_AVAILABLE = False
    extension.fail_if_no_align = lambda function: function
    extension._load_lib = lambda _: False
    sys.modules["torchaudio._extension"] = extension


# Other packages of the zoo import these two if they find them.
TORCHVISION = None if _loads("torchvision", "_C.so") else _declare_operators_of_torchvision()
if not _loads("torchaudio", "lib/_torchaudio.abi3.so"):
    _without_extension_of_torchaudio()
if importlib.util.find_spec("load_atoms") is None:  # with which graph-pes reads data sets
    load_atoms: Any = ModuleType("load_atoms")
    load_atoms.utils = sys.modules["load_atoms.utils"] = ModuleType("load_atoms.utils")
    load_atoms.load_dataset = load_atoms.utils.remove_calculator = None
    sys.modules["load_atoms"] = load_atoms
if importlib.util.find_spec("pandas") is None:  # with which MACE draws the course of its training
    plots: Any = ModuleType("mace.cli.visualize_train")
    plots.TrainingPlotter = None
    sys.modules["mace.cli.visualize_train"] = plots
