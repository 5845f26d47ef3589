"""The models: random weights, small inputs."""

from importlib import import_module

from .registry import MODELS, Inputs, Model

# Each adds its models; the first makes packages importable.
for _family in ("packages", "torch_nn", "volumes", "atoms", "forces", "graphs", "images", "language", "speech"):
    import_module(f".{_family}", __name__)

__all__ = ["MODELS", "Inputs", "Model"]
