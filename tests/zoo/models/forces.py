"""Potentials whose forces are gradients that the module takes itself."""

import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from .atoms import NEQUIP, Equivariant, Molecules, cluster, pairs_within, scattered, script_of_e3nn
from .registry import Inputs, model


class SchnetpackForces(nn.Module):
    """Distances, a representation, energies and forces of SchNetPack, which read and write one dict."""

    def __init__(self, name: str) -> None:
        super().__init__()
        molecules = Molecules(name)
        self.distances = import_module("schnetpack.atomistic").PairwiseDistances()
        self.representation, self.output = molecules.representation, molecules.output
        self.forces = import_module("schnetpack.atomistic").Forces(energy_key="y")

    def forward(
        self, numbers: Tensor, positions: Tensor, i: Tensor, j: Tensor, molecule: Tensor
    ) -> tuple[Tensor, Tensor]:
        values: dict[str, Tensor] = {
            "_atomic_numbers": numbers,
            "_positions": positions.requires_grad_(),
            "_offsets": torch.zeros(i.size(0), 3, dtype=positions.dtype),
            "_idx_i": i,
            "_idx_j": j,
            "_idx_m": molecule,
        }
        values = self.forces(self.output(self.representation(self.distances(values))))
        return values["y"], values["forces"]


def molecule(atoms: int = 24) -> Inputs:
    """Of up to 100 atoms, all pairs; of more, those that are within the cutoff."""
    positions = scattered(atoms)
    if atoms > 100:
        i, j = pairs_within(positions, 5.0)
        return torch.full((atoms,), 6), positions, i, j, torch.zeros(atoms, dtype=torch.long)
    pairs = torch.combinations(torch.arange(atoms))
    i, j = torch.cat([pairs[:, 0], pairs[:, 1]]), torch.cat([pairs[:, 1], pairs[:, 0]])
    return torch.full((atoms,), 6), positions, i, j, torch.zeros(atoms, dtype=torch.long)


model("schnet_forces", molecule, "schnetpack")(lambda: SchnetpackForces("SchNet"))
model("painn_forces", molecule, "schnetpack")(lambda: SchnetpackForces("PaiNN"))


class TorchaniForces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        make = import_module("torchani.arch").simple_ani
        self.model = make(("H", "C", "N", "O"), lot="wb97x-631gd", ensemble_size=2).to(torch.float32)

    def forward(self, species: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        positions.requires_grad_(True)
        energies: Tensor = self.model((species, positions)).energies
        gradient = torch.autograd.grad(
            [energies.sum()], [positions], create_graph=self.training, retain_graph=self.training
        )[0]
        assert gradient is not None
        return energies, -gradient


def two_molecules(atoms: int = 0) -> Inputs:
    """Methane and water, or two systems of `atoms` atoms."""
    if atoms == 0:
        return torch.tensor([[6, 1, 1, 1, 1], [8, 1, 1, -1, -1]]), torch.randn(2, 5, 3)
    species = torch.tensor([6, 1, 1, 8, 7])[torch.arange(atoms) % 5].expand(2, atoms).contiguous()
    return species, torch.stack([scattered(atoms), scattered(atoms)])


model("torchani_forces", two_molecules, "torchani")(TorchaniForces)


class MaceForces(nn.Module):
    """Energies, forces and, with `stress`, stresses of MACE."""

    def __init__(self, stress: bool = False) -> None:
        super().__init__()
        self.model = Equivariant().model
        self.stress = stress

    def forward(self, positions: Tensor, elements: Tensor, edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values: dict[str, Tensor] = {
            "positions": positions,
            "node_attrs": torch.nn.functional.one_hot(elements, 2).to(positions.dtype),
            "edge_index": edges,
            "shifts": torch.zeros(edges.size(1), 3, dtype=positions.dtype),
            "unit_shifts": torch.zeros(edges.size(1), 3, dtype=positions.dtype),
            "cell": torch.eye(3, dtype=positions.dtype) * 20,
            "batch": torch.zeros_like(elements),
            "ptr": torch.tensor([0, elements.size(0)]),
        }
        results = self.model(values, training=self.training, compute_force=True, compute_stress=self.stress)
        energy, forces, stress = results["energy"], results["forces"], results["stress"]
        assert energy is not None
        assert forces is not None
        return energy, forces, stress if stress is not None else torch.zeros(1)


model("mace_forces", cluster, "mace", script=script_of_e3nn)(MaceForces)
model("mace_stress", cluster, "mace", script=script_of_e3nn)(lambda: MaceForces(stress=True))


class NequipForces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        models = import_module("nequip.model")
        self.model = models.ForceOutput(models.EnergyModel(config=NEQUIP, initialize=False))

    def forward(self, positions: Tensor, types: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        values: dict[str, Tensor] = {
            "pos": positions,
            "atom_types": types.unsqueeze(1),
            "edge_index": edges,
            "batch": torch.zeros_like(types),
            "ptr": torch.tensor([0, types.size(0)]),
        }
        results = self.model(values)
        return results["total_energy"], results["forces"]


model("nequip_forces", cluster, "nequip", script=script_of_e3nn)(NequipForces)


# ---- graph-pes ----

ELEMENTS = ("H", "C", "O")


def graph_pes_model(name: str) -> Any:
    models = import_module("graph_pes.models")
    if name == "MACE":
        return models.MACE(elements=list(ELEMENTS), cutoff=4.0, channels=8, layers=2, l_max=2)
    shifts = models.FixedOffset(H=-1.0, C=-2.0, O=-3.0)
    if name == "EDDP":
        return models.AdditionModel(
            offset=shifts, eddp=models.EDDP(elements=list(ELEMENTS), cutoff=4.0, three_body_cutoff=3.0)
        )
    # As its authors put potentials together: each part asks for its own forces.
    return models.AdditionModel(
        offset=shifts, core=models.ZBLCoreRepulsion(cutoff=4.0), network=models.SchNet(cutoff=4.0, channels=32)
    )


def graph_pes_forces(name: str) -> nn.Module:
    atomic_graph: Any = import_module("graph_pes.atomic_graph").AtomicGraph

    class Forces(nn.Module):
        """Energies, forces and virials, by `predict`, which is what programs of molecular dynamics call."""

        def __init__(self) -> None:
            super().__init__()
            self.model: Any = graph_pes_model(name)

        def forward(self, positions: Tensor, types: Tensor, edges: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            graph = atomic_graph(
                Z=types * 5 + 1,
                R=positions,
                cell=torch.eye(3, dtype=positions.dtype) * 20,
                neighbour_list=edges,
                neighbour_cell_offsets=torch.zeros(edges.size(1), 3, dtype=positions.dtype),
                properties={},
                other={},
                cutoff=4.0,
            )
            found = self.model.predict(graph, ["energy", "forces", "virial"])
            return found["energy"], found["forces"], found["virial"]

    return Forces()


for _name in ("sum", "EDDP", "MACE"):
    model(f"graph_pes_{_name.lower()}_forces", cluster, "graph_pes", script=script_of_e3nn)(
        partial(graph_pes_forces, _name)
    )


# ---- TensorNet ----


def get_neighbor_pairs_kernel(
    strategy: str,
    positions: Tensor,
    batch: Tensor,
    box_vectors: Tensor,
    use_periodic: bool,
    cutoff_lower: float,
    cutoff_upper: float,
    max_num_pairs: int,
    loop: bool,
    include_transpose: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Finds pairs of atoms, as the C++ extension of TorchMD-NET does, which needs CUDA libraries."""
    squares = (positions.unsqueeze(1) - positions).detach().square().sum(2)
    near = (squares < cutoff_upper**2) & (squares >= cutoff_lower**2) & (batch.unsqueeze(1) == batch)
    if not loop:
        near = near & ~torch.eye(near.size(0), dtype=torch.bool, device=near.device)
    edges = near.nonzero().t()
    vectors = positions[edges[0]] - positions[edges[1]]
    loops = edges[0] == edges[1]
    distances = vectors.square().sum(1).masked_fill(loops, 1).sqrt().masked_fill(loops, 0)
    return edges, vectors, distances, near.sum().view(1)


def is_current_stream_capturing() -> bool:
    return False


class TensorNetForces(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        extensions = ModuleType("torchmdnet.extensions")
        vars(extensions).update(
            get_neighbor_pairs_kernel=get_neighbor_pairs_kernel,
            is_current_stream_capturing=is_current_stream_capturing,
        )
        sys.modules["torchmdnet.extensions"] = extensions
        self.model = import_module("torchmdnet.models.model").create_model(TENSORNET)

    def forward(self, numbers: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        energy, forces = self.model(numbers, positions)
        return energy, forces


TENSORNET = {
    "model": "tensornet",
    "precision": 32,
    "embedding_dimension": 32,
    "num_layers": 2,
    "num_rbf": 16,
    "rbf_type": "expnorm",
    "trainable_rbf": False,
    "activation": "silu",
    "cutoff_lower": 0.0,
    "cutoff_upper": 4.5,
    "max_z": 20,
    "max_num_neighbors": 64,
    "equivariance_invariance_group": "O(3)",
    "derivative": True,
    "atom_filter": -1,
    "prior_model": None,
    "output_model": "Scalar",
    "reduce_op": "sum",
}


def atoms_alone(atoms: int = 24) -> Inputs:
    return torch.full((atoms,), 6), scattered(atoms)


model("tensornet_forces", atoms_alone, "torchmdnet")(TensorNetForces)


# ---- DeePMD-kit ----


class DeepmdForces(nn.Module):
    """Energies, forces and virials, without DeePMD-kit's C++ operators, which are compiled for another PyTorch."""

    def __init__(self, descriptor: dict[str, Any]) -> None:
        super().__init__()
        environment: Any = import_module("deepmd.env")
        environment.GLOBAL_CONFIG["cibuildwheel"] = "0"
        environment.SHARED_LIB_DIR = Path("without operators")
        fitting = {"neuron": [32, 32], "precision": "float32", "seed": 1}
        config = {"type_map": ["O", "H"], "descriptor": descriptor, "fitting_net": fitting}
        self.model = import_module("deepmd.pt.model.model").get_model(config)

    def forward(self, positions: Tensor, types: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        results: dict[str, Tensor] = self.model(positions, types)
        return results["energy"], results["force"], results["virial"]


WITHIN = {"rcut": 4.0, "rcut_smth": 0.5, "neuron": [8, 16, 32], "precision": "float32", "seed": 1}


def water(atoms: int = 24) -> Inputs:
    return scattered(atoms).unsqueeze(0), (torch.arange(atoms) % 3 > 0).long().unsqueeze(0)


model("deepmd_forces", water, "deepmd")(
    lambda: DeepmdForces({"type": "se_e2_a", "sel": [20, 40], "axis_neuron": 8, **WITHIN})
)
model("deepmd_attention_forces", water, "deepmd")(
    lambda: DeepmdForces({"type": "se_atten", "sel": 60, "axis_neuron": 8, "attn": 32, "attn_layer": 2, **WITHIN})
)
