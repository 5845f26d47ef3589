"""DenseNet (Huang et al., 2017) as torchvision writes it: each layer reads the features of all layers before it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class DenseLayer(nn.Module):
    """Concatenates, then applies batch norm, ReLU and convolution twice (1x1 to 4 * `growth`, 3x3 to `growth`)."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4 * growth, growth, kernel_size=3, padding=1, bias=False)

    def bottleneck(self, features: list[Tensor]) -> Tensor:
        return self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))

    def forward(self, features: list[Tensor]) -> Tensor:
        return self.conv2(self.relu2(self.norm2(self.bottleneck(features))))


class DenseBlock(nn.Module):
    """`layers` dense layers: `inputs` channels to `inputs` + `layers` * `growth`."""

    def __init__(self, layers: int, inputs: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([DenseLayer(inputs + i * growth, growth) for i in range(layers)])

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Module):
    """Halves the channels and the edge."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, inputs // 2, kernel_size=1, bias=False)
        self.pool = nn.AvgPool2d(kernel_size=2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(self.relu(self.norm(x))))


class DenseNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes). `blocks`: dense layers in each of the blocks."""

    def __init__(
        self, blocks: tuple[int, ...] = (6, 12, 24, 16), growth: int = 32, width: int = 64, classes: int = 1000
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        stages: list[nn.Module] = []
        channels = width
        for index, layers in enumerate(blocks):
            if index > 0:
                stages.append(Transition(channels))
                channels //= 2
            stages.append(DenseBlock(layers, channels, growth))
            channels += layers * growth
        self.stages = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.stages(self.stem(x))), inplace=True)
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))
