"""Classification, segmentation and detection of torchvision, and image models of timm."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from .registry import Inputs, model, sequence

pictures = sequence(4, 3, 64, 64)


def vision(name: str, *arguments: Any, inputs: Callable[[], Inputs] = pictures, **options: Any) -> None:
    """Adds a model that torchvision makes by this name, scripted."""
    make = options.pop("make", name)

    def made() -> nn.Module:
        found: Any = import_module("torchvision.models")
        for part in make.split("."):
            found = getattr(found, part)
        result: nn.Module = found(*arguments, **options)
        return result

    model(f"torchvision_{name}", inputs, "torchvision")(made)


vision("resnet18")
vision("mobilenet_v3_small")
vision("efficientnet_b0")
vision("shufflenet_v2_x0_5")
vision("regnet_y_400mf")
vision("densenet121", inputs=sequence(2, 3, 64, 64))
vision("googlenet", init_weights=False, inputs=sequence(2, 3, 96, 96))
vision("r3d_18", make="video.r3d_18", inputs=sequence(1, 3, 4, 32, 32))
vision(
    "vit",
    make="VisionTransformer",
    image_size=64,
    patch_size=8,
    num_layers=4,
    num_heads=4,
    hidden_dim=64,
    mlp_dim=128,
    dropout=0.1,
)
vision(
    "swin",
    make="SwinTransformer",
    patch_size=[4, 4],
    embed_dim=32,
    depths=[2, 2],
    num_heads=[2, 4],
    window_size=[4, 4],
    stochastic_depth_prob=0.2,
)
vision(
    "maxvit",
    make="MaxVit",
    input_size=(64, 64),
    stem_channels=16,
    partition_size=4,
    block_channels=[16, 32],
    block_layers=[1, 1],
    head_dim=8,
    stochastic_depth_prob=0.2,
)
vision("deeplabv3_mobilenet", make="segmentation.deeplabv3_mobilenet_v3_large", weights_backbone=None, aux_loss=True)
vision("fcn_resnet50", make="segmentation.fcn_resnet50", weights_backbone=None, inputs=sequence(2, 3, 64, 64))
vision("lraspp_mobilenet", make="segmentation.lraspp_mobilenet_v3_large", weights_backbone=None)
vision("raft_small", make="optical_flow.raft_small", inputs=lambda: (torch.rand(1, 3, 128, 128),) * 2)


@model("torchvision_convnext", pictures, "torchvision")
def convnext() -> nn.Module:
    convnext = import_module("torchvision.models").convnext
    stages = [convnext.CNBlockConfig(24, 48, 2), convnext.CNBlockConfig(48, None, 2)]
    made: nn.Module = convnext.ConvNeXt(stages, stochastic_depth_prob=0.2)
    return made


class Detection(nn.Module):
    """The losses of a detector in training, whose targets are lists of dicts."""

    def __init__(self) -> None:
        super().__init__()
        detection = import_module("torchvision.models").detection
        self.model = detection.retinanet_resnet50_fpn(
            weights=None, weights_backbone=None, num_classes=5, min_size=96, max_size=96
        )

    def forward(self, image: Tensor, boxes: Tensor, labels: Tensor) -> dict[str, Tensor]:
        images = [image[i] for i in range(image.size(0))]
        targets = [{"boxes": boxes[i], "labels": labels[i]} for i in range(image.size(0))]
        found = self.model(images, targets)
        losses: dict[str, Tensor] = found[0] if torch.jit.is_scripting() else found
        return losses


def marked_pictures() -> Inputs:
    corners = torch.rand(2, 3, 2) * 40
    return (
        torch.rand(2, 3, 96, 96),
        torch.cat([corners, corners + 20 + torch.rand(2, 3, 2) * 20], 2),
        torch.arange(6).view(2, 3) % 5,
    )


model("torchvision_retinanet", marked_pictures, "torchvision")(Detection)

# ---- Without a script of their authors: traced ----


def traced_resnet() -> nn.Module:
    made: nn.Module = import_module("torchvision.models").resnet18()
    return made


model("torchvision_resnet18_traced", pictures, "torchvision", traced=True)(traced_resnet)


# ---- timm ----


def image_model(name: str, size: int = 64, batch: int = 2, **options: Any) -> None:
    def made(**choices: Any) -> nn.Module:
        result: nn.Module = import_module("timm").create_model(name, **choices, **options)
        return result

    model(f"timm_{name}", sequence(batch, 3, size, size), "timm")(partial(made, scriptable=True))


image_model("resnet10t")
image_model("vit_tiny_patch16_224", img_size=64, batch=16, depth=4, drop_path_rate=0.1)
image_model("convnext_atto", drop_path_rate=0.1)
image_model("tf_efficientnet_lite0", drop_path_rate=0.2)
image_model("levit_128s", size=224)
image_model("mobilevit_xxs")
image_model("xcit_nano_12_p16_224", size=64)
image_model("pvt_v2_b0")
image_model("edgenext_xx_small")
image_model("mixer_s32_224", img_size=64, batch=16)
image_model("coatnet_nano_rw_224", img_size=64)
image_model("poolformer_s12")
image_model("gcresnext26ts")

# ---- segmentation-models ----


def segmentation(name: str) -> None:
    def make() -> nn.Module:
        network: nn.Module = getattr(import_module("segmentation_models_pytorch"), name)(
            "resnet18", encoder_weights=None, classes=2
        )
        return network

    model(f"segmentation_{name.lower()}", sequence(2, 3, 64, 64), "segmentation_models_pytorch")(make)


for _name in ("Unet", "FPN", "DeepLabV3Plus"):
    segmentation(_name)
