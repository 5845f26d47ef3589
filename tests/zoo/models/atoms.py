"""Energies of molecules."""

import typing
from importlib import import_module

import numpy as np
import torch
from torch import Tensor, nn

from .registry import Inputs, model


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

# ---- MACE ----


class Equivariant(nn.Module):
    """Energies of MACE. Its forces are gradients taken inside the module, which is out of scope."""

    def __init__(self) -> None:
        super().__init__()
        modules, o3 = import_module("mace.modules"), import_module("e3nn.o3")
        block = modules.interaction_classes["RealAgnosticResidualInteractionBlock"]
        self.model = modules.ScaleShiftMACE(
            r_max=5.0,
            num_bessel=8,
            num_polynomial_cutoff=5,
            max_ell=2,
            interaction_cls=block,
            interaction_cls_first=modules.interaction_classes["RealAgnosticInteractionBlock"],
            num_interactions=2,
            num_elements=2,
            hidden_irreps=o3.Irreps("16x0e + 16x1o"),
            MLP_irreps=o3.Irreps("16x0e"),
            atomic_energies=np.array([-1.0, -3.0]),
            avg_num_neighbors=8.0,
            atomic_numbers=[1, 6],
            correlation=3,
            gate=nn.functional.silu,
            atomic_inter_scale=1.0,
            atomic_inter_shift=0.0,
        ).to(torch.float32)

    def forward(self, positions: Tensor, elements: Tensor, edges: Tensor) -> Tensor:
        values: dict[str, Tensor] = {
            "positions": positions,
            "node_attrs": torch.nn.functional.one_hot(elements, 2).to(positions.dtype),
            "edge_index": edges,
            "shifts": torch.zeros(edges.size(1), 3),
            "unit_shifts": torch.zeros(edges.size(1), 3),
            "cell": torch.zeros(3, 3),
            "batch": torch.zeros_like(elements),
            "ptr": torch.tensor([0, elements.size(0)]),
        }
        energy: Tensor | None = self.model(values, compute_force=False)["energy"]
        assert energy is not None
        return energy


def scattered(atoms: int) -> Tensor:
    """Positions of atoms, which are as dense for many atoms as for the 24 of the zoo."""
    positions: Tensor = torch.randn(atoms, 3) * 2 * max(1.0, atoms / 24) ** (1 / 3)
    return positions


def pairs_within(positions: Tensor, cutoff: float) -> tuple[Tensor, Tensor]:
    near = torch.cdist(positions, positions) < cutoff
    i, j = torch.nonzero(near & ~torch.eye(near.size(0), dtype=torch.bool)).unbind(1)
    return i, j


def cluster(atoms: int = 12) -> Inputs:
    positions = scattered(atoms)
    return positions, torch.arange(atoms) % 2, torch.stack(pairs_within(positions, 5.0))


def script_of_e3nn(module: nn.Module) -> torch.jit.ScriptModule:
    scripted: torch.jit.ScriptModule = import_module("e3nn.util.jit").script(module)
    return scripted


model("mace", cluster, "mace", script=script_of_e3nn)(Equivariant)

# ---- NequIP ----

# The last version whose authors script their models.
NEQUIP: dict[str, object] = {
    "r_max": 4.0,
    "num_types": 2,
    "avg_num_neighbors": 8.0,
    "num_layers": 2,
    "num_basis": 8,
    "BesselBasis_trainable": True,
    "PolynomialCutoff_p": 6,
    "chemical_embedding_irreps_out": "8x0e",
    "feature_irreps_hidden": "8x0o + 8x0e + 8x1o + 8x1e",
    "irreps_edge_sh": "0e + 1o",
    "conv_to_output_hidden_irreps_out": "8x0e",
    "nonlinearity_type": "gate",
    "nonlinearity_scalars": {"e": "silu", "o": "tanh"},
    "nonlinearity_gates": {"e": "silu", "o": "tanh"},
    "resnet": False,
    "use_sc": True,
    "invariant_layers": 1,
    "invariant_neurons": 8,
}


class NequipEnergies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = import_module("nequip.model").EnergyModel(config=NEQUIP, initialize=False)

    def forward(self, positions: Tensor, types: Tensor, edges: Tensor) -> Tensor:
        values: dict[str, Tensor] = {
            "pos": positions,
            "atom_types": types.unsqueeze(1),
            "edge_index": edges,
            "batch": torch.zeros_like(types),
            "ptr": torch.tensor([0, types.size(0)]),
        }
        energy: Tensor = self.model(values)["total_energy"]
        return energy


model("nequip", cluster, "nequip", script=script_of_e3nn)(NequipEnergies)
