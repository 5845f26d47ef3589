"""A multi-layer perceptron."""

from torch import Tensor, nn
from torch.nn import functional as F


class MLP(nn.Module):
    """`layers` linear layers of one width with ReLU between them: (batch, width) to (batch, width)."""

    def __init__(self, layers: int = 10, width: int = 1024) -> None:
        super().__init__()
        modules: list[nn.Module] = [nn.Linear(width, width)]
        for _ in range(layers - 1):
            modules += [nn.ReLU(), nn.Linear(width, width)]
        self.layers = nn.Sequential(*modules)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class MLPWithLoss(MLP):
    """The same network with its loss: inputs and targets, (batch, width) each, to the mean squared error."""

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        return F.mse_loss(self.layers(x), targets)
