"""U-Net (Ronneberger et al., 2015) with batch norm: an encoder whose features reach the decoder over long skips."""

import torch
from torch import Tensor, nn


class DoubleConv(nn.Module):
    """A 3x3 convolution, batch norm and ReLU, twice."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, kernel_size=3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)))


class Down(nn.Module):
    """Halves the edge and makes `outputs` channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size=2)
        self.conv = DoubleConv(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(self.pool(x))


class Up(nn.Module):
    """Doubles the edge, concatenates the encoder's features of that edge, and makes `outputs` channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, kernel_size=2, stride=2)
        self.conv = DoubleConv(2 * outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return self.conv(torch.cat([skip, self.up(x)], dim=1))


class UNet(nn.Module):
    """Images (batch, 3, height, width) to logits (batch, classes, height, width); edges are multiples of 16.

    `width` is the number of channels at full size (64 in the paper); each of the four levels below doubles it.
    """

    def __init__(self, width: int = 64, classes: int = 21) -> None:
        super().__init__()
        self.entry = DoubleConv(3, width)
        self.down1 = Down(width, 2 * width)
        self.down2 = Down(2 * width, 4 * width)
        self.down3 = Down(4 * width, 8 * width)
        self.down4 = Down(8 * width, 16 * width)
        self.up1 = Up(16 * width, 8 * width)
        self.up2 = Up(8 * width, 4 * width)
        self.up3 = Up(4 * width, 2 * width)
        self.up4 = Up(2 * width, width)
        self.head = nn.Conv2d(width, classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.entry(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x = self.down4(x4)
        x = self.up1(x, x4)
        x = self.up2(x, x3)
        x = self.up3(x, x2)
        x = self.up4(x, x1)
        return self.head(x)
