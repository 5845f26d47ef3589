"""Graph networks of PyTorch Geometric."""

from importlib import import_module

import torch
from torch import Tensor, nn

from .registry import Inputs, model


class GraphNet(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        convolution = getattr(import_module("torch_geometric.nn"), name)
        if name == "GINConv":
            self.first, self.second = convolution(nn.Linear(32, 64)), convolution(nn.Linear(64, 16))
        else:
            self.first, self.second = convolution(32, 64), convolution(64, 16)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        result: Tensor = self.second(torch.relu(self.first(x, edges)), edges)
        return result


def graph() -> Inputs:
    return torch.randn(200, 32), torch.randint(0, 200, (2, 1000))


model("pyg_gcn", graph, "torch_geometric")(lambda: GraphNet("GCNConv"))
model("pyg_sage", graph, "torch_geometric")(lambda: GraphNet("SAGEConv"))
model("pyg_gin", graph, "torch_geometric")(lambda: GraphNet("GINConv"))
