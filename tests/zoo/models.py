"""The models: random weights, small inputs. Their packages are imported when a model is made."""

import typing
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

Inputs = tuple[Any, ...]


@dataclass(frozen=True)
class Model:
    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    package: str = "torch"


MODELS: dict[str, Model] = {}


Make = Callable[[], nn.Module]


def model(name: str, inputs: Callable[[], Inputs], package: str = "torch") -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        MODELS[name] = Model(name, make, inputs, package)
        return make

    return add


# ---- torch.nn ----


def sequence(*sizes: int) -> Callable[[], Inputs]:
    return lambda: (torch.randn(*sizes),)


def padding_mask(batch: int, length: int) -> Tensor:
    return torch.arange(length).expand(batch, length) > length - 3


@model("transformer_encoder_mask", lambda: (torch.randn(8, 32, 64), None, padding_mask(8, 32)))
def transformer_encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, 0.1, batch_first=True), 3)


@model("transformer_decoder", lambda: (torch.randn(8, 32, 64), torch.randn(8, 24, 64)))
def transformer_decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(64, 4, 128, 0.1, batch_first=True), 2)


class CellsOverTime(nn.Module):
    """Two cells over time, with a branch on the place in the sequence."""

    def __init__(self, cell: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.first, self.second = cell(64, 64), cell(64, 64)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        a, b = torch.zeros(x.size(1), 64), torch.zeros(x.size(1), 64)
        states: list[Tensor] = []
        for t in range(x.size(0)):
            a = self.first(x[t], a)
            if t % 2 == 0:
                b = self.second(a, b)
            states.append(b)
        return torch.stack(states)


@model("gru_cells", sequence(12, 64, 64))
def gru_cells() -> nn.Module:
    return CellsOverTime(nn.GRUCell)


@model("rnn_cells", sequence(12, 64, 64))
def rnn_cells() -> nn.Module:
    return CellsOverTime(nn.RNNCell)


# ---- MONAI ----

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

# ---- atoms ----


class Energies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        make = import_module("torchani.arch").simple_ani
        self.model = make(("H", "C", "N", "O"), lot="wb97x-631gd", ensemble_size=2).to(torch.float32)

    def forward(self, species: Tensor, positions: Tensor) -> Tensor:
        energies: Tensor = self.model((species, positions)).energies
        return energies


@model(
    "torchani",
    lambda: (torch.tensor([[6, 1, 1, 1, 1], [8, 1, 1, -1, -1]]), torch.randn(2, 5, 3)),
    "torchani",
)
def torchani() -> nn.Module:
    return Energies()


class Molecules(nn.Module):
    """A representation of SchNetPack and its output, which read and write one dict."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import torch.utils.data.dataloader as loader

        if not hasattr(loader, "T_co"):  # SchNetPack imports it; PyTorch 2.13 has it no more
            loader.T_co = typing.TypeVar("T_co")  # type: ignore[attr-defined]
        layers = import_module("schnetpack.nn")
        self.representation = getattr(import_module("schnetpack.representation"), name)(
            n_atom_basis=32,
            n_interactions=3,
            radial_basis=layers.GaussianRBF(16, 5.0),
            cutoff_fn=layers.CosineCutoff(5.0),
        )
        self.output = import_module("schnetpack.atomistic").Atomwise(n_in=32)

    def forward(self, numbers: Tensor, offsets: Tensor, i: Tensor, j: Tensor, molecule: Tensor) -> Tensor:
        values: dict[str, Tensor] = {
            "_atomic_numbers": numbers,
            "_Rij": offsets,
            "_idx_i": i,
            "_idx_j": j,
            "_idx_m": molecule,
        }
        values = self.output(self.representation(values))
        return values["y"]


def molecule(atoms: int = 24) -> Inputs:
    positions = torch.randn(atoms, 3)
    pairs = torch.combinations(torch.arange(atoms))
    i, j = torch.cat([pairs[:, 0], pairs[:, 1]]), torch.cat([pairs[:, 1], pairs[:, 0]])
    return torch.full((atoms,), 6), positions[j] - positions[i], i, j, torch.zeros(atoms, dtype=torch.long)


model("schnet", molecule, "schnetpack")(lambda: Molecules("SchNet"))
model("painn", molecule, "schnetpack")(lambda: Molecules("PaiNN"))

# ---- graphs ----


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
