"""MobileNetV2 (Sandler et al., 2018): depthwise convolutions between narrow layers, as torchvision writes it."""

import torch
from torch import Tensor, nn

# Expansion, channels, number of blocks and first stride of each stage, from the paper.
STAGES: tuple[tuple[int, int, int, int], ...] = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):
    """Widens the channels, convolves each by itself, and narrows them again without an activation."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        self.has_shortcut = stride == 1 and inputs == outputs
        hidden = inputs * expansion
        layers: list[nn.Module] = [convolution(inputs, hidden, 1)] if expansion != 1 else []
        layers += [
            convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.conv(x) if self.has_shortcut else self.conv(x)


class MobileNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes). `first` and `last`: channels at both ends."""

    def __init__(
        self,
        stages: tuple[tuple[int, int, int, int], ...] = STAGES,
        first: int = 32,
        last: int = 1280,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [convolution(3, first, 3, stride=2)]
        channels = first
        for expansion, outputs, blocks, stride in stages:
            for index in range(blocks):
                layers.append(InvertedResidual(channels, outputs, stride if index == 0 else 1, expansion))
                channels = outputs
        layers.append(convolution(channels, last, 1))
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(last, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(x)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(self.dropout(torch.flatten(x, 1)))
