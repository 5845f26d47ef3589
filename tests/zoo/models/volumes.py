"""Networks of MONAI."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import nn

from .registry import Inputs, model, sequence

volume = sequence(1, 1, 32, 32, 32)


def monai(name: str, *arguments: Any, inputs: Callable[[], Inputs] = volume, **options: Any) -> None:
    def make() -> nn.Module:
        made: nn.Module = getattr(import_module("monai.networks.nets"), name)(*arguments, **options)
        return made

    model(f"monai_{name.lower()}", inputs, "monai")(make)


monai("UNet", 3, 1, 2, (4, 8, 16), (2, 2), num_res_units=1)
monai("VNet", 3, 1, 2)
monai("SegResNet", 3, 8, 1, 2)
monai("UNETR", 1, 2, (32, 32, 32), feature_size=4, hidden_size=32, mlp_dim=64, num_heads=4)
monai("ViT", 1, (32, 32, 32), (8, 8, 8), hidden_size=96, mlp_dim=192, num_layers=4, num_heads=4)
monai("DynUNet", 3, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[4, 8, 16])
monai("BasicUNet", 3, 1, 2, (4, 4, 8, 8, 16, 4))
monai("AttentionUnet", 3, 1, 2, (4, 8, 16), (2, 2))
monai("DenseNet121", 2, 1, 2, inputs=sequence(2, 1, 64, 64))
