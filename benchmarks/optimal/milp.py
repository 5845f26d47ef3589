"""The optimal plan as a mixed-integer program, similar to that of Checkmate (Jain et al., MLSys 2020).

Stage t is the t-th backward node together with the forward nodes that are recomputed for it. The binary variables are
R[t, i], forward node i runs in stage t (before the backward node, and in the order of the forward), and S[t, v], value
v is kept into stage t. The forward runs once. Sizes are exact at every step, as in the simulator: a value is freed
after its last read in a stage, unless it is kept into the next one. For this purpose L[t, v, i] says, for every forward
node i that may read v in stage t, that v is in memory until that read. These variables need not be declared binary,
because their smallest feasible values are 0 or 1.

Gradients are made and read at the same places under every plan, so their bytes are constants.

`early` says whether a stage may compute a value that only later stages read. The backend never does, because it
recomputes a value immediately before its first use.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import gcd
from typing import Any

import highspy
import numpy as np

from benchmarks.optimal.simulate import Step, check_supported, storage_sizes

Problem = dict[str, Any]
Terms = dict[int, float]  # coefficient per variable
Chain = list[tuple[int, int]]  # nodes that may read a value in a stage, each with its variable in L


@dataclass
class Solution:
    status: str  # optimal, feasible (time limit), infeasible, unknown
    recompute_seconds: float | None  # of the plan that was found
    bound_seconds: float  # no plan recomputes for less time
    steps: list[Step] | None
    solver_seconds: float
    num_binaries: int
    num_rows: int

    @property
    def proven(self) -> bool:
        return self.status == "optimal"


@dataclass
class Row:
    terms: Terms
    lower: float
    upper: float


@dataclass
class Model:
    """The program of a problem. The memory limit affects only the upper bounds of the `memory` rows."""

    problem: Problem
    early: bool = False

    cost: list[float] = field(default_factory=list)
    binary: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    memory: list[tuple[Terms, int]] = field(default_factory=list)  # with the constant term, in units of `unit` bytes
    R: dict[tuple[int, int], int] = field(default_factory=dict)
    S: dict[tuple[int, int], int] = field(default_factory=dict)
    L: dict[tuple[int, int, int], int] = field(default_factory=dict)  # stage, value, reading node

    def __post_init__(self) -> None:
        problem = self.problem
        check_supported(problem)
        nodes = problem["nodes"]
        self.F = problem["num_forward"]
        self.B = problem["num_nodes"] - self.F
        sizes = storage_sizes(problem)
        self.unit = gcd(problem["loss_bytes"], *sizes, *nodes["workspace_bytes"]) or 1
        self.size = [size // self.unit for size in sizes]
        self.workspace = [size // self.unit for size in nodes["workspace_bytes"]]
        self.loss = problem["loss_bytes"] // self.unit
        self.made = [nodes["outputs"][node][0] for node in range(self.F)]
        results = set(problem["results"])
        # The values that plans decide about: made by the forward, and not kept by the caller.
        self.decided = [value for value in self.made if value not in results]
        self.node_of = {value: node for node, value in enumerate(self.made)}
        is_decided = set(self.decided)
        self.reads = [[v for v in dict.fromkeys(nodes["inputs"][node]) if v in is_decided] for node in range(self.F)]
        # Per stage, those that its backward node reads. Stages, like the slots of the simulator, count from 1.
        self.needs: list[set[int]] = [set()]
        for t in range(1, self.B + 1):
            self.needs.append(set(nodes["inputs"][self.F + t - 1]) & is_decided)
        self.readers: dict[int, list[int]] = defaultdict(list)
        for node in range(self.F):
            for value in self.reads[node]:
                self.readers[value].append(node)
        self._constants(results)
        self._variables()
        for t in range(1, self.B + 1):
            self._stage(t)
        self._forward()

    # ---- Memory that does not depend on the plan ----

    def _constants(self, results: set[int]) -> None:
        nodes, incoming = self.problem["nodes"], self.problem["incoming"]
        B, F = self.B, self.F
        # In stage t, the gradients and what the caller keeps: before the backward node, and while it runs.
        self.before, self.during = [0] * (B + 2), [0] * (B + 2)
        self.results_made = sum(self.size[v] for v in results if v in self.node_of)
        last_read = [0] * len(self.size)
        for t in range(1, B + 1):
            for value in nodes["inputs"][F + t - 1]:
                last_read[value] = t
        self.incoming = 0
        for value, producer in enumerate(self.problem["values"]["producer"]):
            if value in self.node_of or (producer < 0 and value not in incoming):
                continue
            made = producer - F + 1 if producer >= 0 else 0
            last = B if value in results else max(last_read[value], made)
            if producer < 0 and last > 0:
                self.incoming += self.size[value]
            for t in range(max(1, made), last + 1):
                self.during[t] += self.size[value]
                if t > made:
                    self.before[t] += self.size[value]
        for t in range(1, B + 1):
            self.before[t] += self.results_made
            self.during[t] += self.results_made + self.workspace[F + t - 1]

    # ---- Variables ----

    def _variable(self, cost: float, binary: bool) -> int:
        self.cost.append(cost)
        self.binary.append(binary)
        return len(self.cost) - 1

    def _closure(self, values: set[int]) -> set[int]:
        """Returns the values and all others that may have to be recomputed to make them."""
        found, stack = set(), list(values)
        while stack:
            value = stack.pop()
            if value in found:
                continue
            found.add(value)
            node = self.node_of[value]
            if self.problem["nodes"]["recomputable"][node]:
                stack += self.reads[node]
        return found

    def _variables(self) -> None:
        nodes = self.problem["nodes"]
        later: set[int] = set()
        closures: dict[int, set[int]] = {}
        for t in range(self.B, 0, -1):
            now = self._closure(self.needs[t])
            later |= now
            closures[t] = set(later)
            for value in sorted(later):
                self.S[t, value] = self._variable(0.0, True)
            for value in sorted(later if self.early else now):
                node = self.node_of[value]
                if nodes["recomputable"][node]:
                    self.R[t, node] = self._variable(nodes["seconds"][node], True)
        for t in range(1, self.B + 1):
            for value in closures[t] - self.needs[t]:
                for reader in self.readers[value]:
                    if (t, reader) in self.R:
                        self.L[t, value, reader] = self._variable(0.0, False)

    # ---- Rows ----

    def _add(self, terms: Sequence[tuple[int | None, float]], lower: float, upper: float) -> None:
        merged: Terms = {}
        for variable, factor in terms:
            if variable is not None:
                merged[variable] = merged.get(variable, 0.0) + factor
        self.rows.append(Row(merged, lower, upper))

    def _stage(self, t: int) -> None:
        # For each value that may be kept into the stage: the nodes that may read it there, with their variables.
        chains = {
            value: [
                (reader, self.L[t, value, reader]) for reader in self.readers[value] if (t, value, reader) in self.L
            ]
            for value in self.decided
            if (t, value) in self.S
        }
        for value, chain in chains.items():
            self._value_rows(t, value, chain)
        for node in range(self.F):
            if (t, node) in self.R:
                self._recomputation_memory(t, node, chains)
        self._backward_memory(t)

    def _value_rows(self, t: int, value: int, chain: Chain) -> None:
        """When a value is in memory in stage t: from being kept or recomputed to its last use."""
        inf = float("inf")
        kept, again = self.S[t, value], self.R.get((t, self.node_of[value]))
        next_kept = self.S.get((t + 1, value))
        if again is not None:
            self._add([(kept, 1), (again, 1)], -inf, 1)
        if value in self.needs[t]:
            self._add([(kept, 1), (again, 1)], 1, inf)
            return
        uses = [variable for _, variable in chain] + ([next_kept] if next_kept is not None else [])
        if uses:
            self._add([(kept, 1), (again, 1), (uses[0], -1)], 0, inf)
        for first, second in pairwise(uses):
            self._add([(first, 1), (second, -1)], 0, inf)
        for reader, variable in chain:
            self._add([(variable, 1), (self.R[t, reader], -1)], 0, inf)
        if again is not None and not self.early:
            # A node runs only if another node reads its result in this stage.
            readers = [(self.R.get((t, reader)), 1.0) for reader in self.readers[value]]
            self._add([*readers, (again, -1)], 0, inf)

    def _recomputation_memory(self, t: int, node: int, chains: dict[int, Chain]) -> None:
        """What is in memory while a forward node runs in stage t.

        If the node does not run, this is no more than what is in memory at the steps before and after.
        """
        terms: Terms = defaultdict(float)
        constant = self.before[t]
        terms[self.R[t, node]] += self.workspace[node]
        for value, chain in chains.items():
            made_by, size = self.node_of[value], self.size[value]
            if made_by > node:
                terms[self.S[t, value]] += size
            elif made_by == node:
                terms[self.S[t, value]] += size
                terms[self.R[t, node]] += size
            elif value in self.needs[t]:
                constant += size
            else:
                use = next((variable for reader, variable in chain if reader >= node), self.S.get((t + 1, value)))
                if use is not None:
                    terms[use] += size
        self.memory.append((dict(terms), constant))

    def _backward_memory(self, t: int) -> None:
        """What is in memory while the backward node of stage t runs."""
        terms: Terms = defaultdict(float)
        constant = self.during[t]
        for value in self.decided:
            if value in self.needs[t]:
                constant += self.size[value]
            elif (t + 1, value) in self.S:
                terms[self.S[t + 1, value]] += self.size[value]
        self.memory.append((dict(terms), constant))

    def _forward(self) -> None:
        results_so_far = 0
        kept = {value: self.S[1, value] for value in self.decided if (1, value) in self.S}
        for k in range(self.F):
            terms: Terms = {}
            if self.made[k] not in self.decided:
                results_so_far += self.size[self.made[k]]
            constant = results_so_far + self.workspace[k]
            for value in self.decided:
                if self.node_of[value] > k:
                    continue
                if self.node_of[value] == k or any(reader >= k for reader in self.readers[value]):
                    constant += self.size[value]
                elif value in kept:
                    terms[kept[value]] = self.size[value]
            self.memory.append((terms, constant))
        at_loss = {variable: float(self.size[value]) for value, variable in kept.items()}
        self.memory.append((at_loss, self.results_made + self.incoming + self.loss))

    # ---- Plans in and out ----

    def peak_bytes(self, x: np.ndarray) -> int:
        """Returns the peak of an assignment according to the model."""
        return self.unit * max(
            round(constant + sum(factor * x[variable] for variable, factor in terms.items()))
            for terms, constant in self.memory
        )

    def violated(self, x: np.ndarray, tolerance: float = 1e-6) -> list[int]:
        """Returns the rows that an assignment violates; the memory rows are not checked."""
        wrong = []
        for index, row in enumerate(self.rows):
            activity = sum(factor * x[variable] for variable, factor in row.terms.items())
            if activity < row.lower - tolerance or activity > row.upper + tolerance:
                wrong.append(index)
        return wrong

    def assignment(self, steps: Sequence[Step]) -> np.ndarray:
        """Returns the variables' values for a schedule. Raises KeyError if the model has no variable for a step."""
        x = np.zeros(len(self.cost))
        runs: dict[int, set[int]] = defaultdict(set)
        for node, slot in steps:
            if slot > 0 and node < self.F:
                x[self.R[slot, node]] = 1.0
                runs[slot].add(node)
        for value in self.decided:
            node = self.node_of[value]
            # From the last stage to the first: `wanted` says whether the value is read later, before it is made anew.
            wanted = False
            for t in range(self.B, 0, -1):
                readers = sorted(reader for reader in self.readers[value] if reader in runs[t])
                for reader in self.readers[value]:
                    if (t, value, reader) in self.L and (wanted or any(each >= reader for each in readers)):
                        x[self.L[t, value, reader]] = 1.0
                wanted = wanted or bool(readers) or value in self.needs[t]
                if node in runs[t]:
                    wanted = False
                if wanted:
                    x[self.S[t, value]] = 1.0
        return x

    def schedule(self, x: np.ndarray) -> list[Step]:
        steps: list[Step] = [(node, 0) for node in range(self.F)]
        for t in range(1, self.B + 1):
            steps += [(k, t) for k in range(self.F) if (t, k) in self.R and x[self.R[t, k]] > 0.5]
            steps.append((self.F + t - 1, t))
        return steps

    # ---- The solver ----

    def _linear_program(self, rows: list[tuple[Terms, float, float]], scale: float) -> Any:
        """Returns the program with these rows (terms, lower and upper bound) in the solver's format."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(rows)
        lp.col_cost_ = np.array(self.cost) * scale
        lp.col_lower_, lp.col_upper_ = np.zeros(len(self.cost)), np.ones(len(self.cost))
        lp.row_lower_ = np.array([lower for _, lower, _ in rows])
        lp.row_upper_ = np.array([upper for _, _, upper in rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0] + [len(terms) for terms, _, _ in rows])
        lp.a_matrix_.index_ = np.array([variable for terms, _, _ in rows for variable in terms])
        lp.a_matrix_.value_ = np.array([factor for terms, _, _ in rows for factor in terms.values()])
        integer, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
        lp.integrality_ = [integer if binary else real for binary in self.binary]
        return lp

    def solve(
        self, limit_bytes: int, time_limit: float, start: np.ndarray | None = None, gap_seconds: float = 0.0
    ) -> Solution:
        """Solves the program.

        Args:
            limit_bytes: the greatest peak that is allowed.
            time_limit: the time for the solver, in seconds.
            start: an assignment within the limit, from which the solver starts.
            gap_seconds: a plan counts as optimal if it is at most this far above the bound.
        """
        inf = highspy.kHighsInf
        # Sizes are divided by the limit, since the solver's tolerances are meant for numbers around 1.
        limit = limit_bytes // self.unit
        if not self.cost:  # solvers do not accept a program without variables
            if any(constant > limit for _, constant in self.memory):
                return Solution("infeasible", None, inf, None, 0.0, 0, 0)
            return Solution("optimal", 0.0, 0.0, self.schedule(np.zeros(0)), 0.0, 0, 0)
        rows = [(row.terms, max(row.lower, -inf), min(row.upper, inf)) for row in self.rows]
        for terms, constant in self.memory:
            if constant + sum(terms.values()) > limit:
                scaled = {variable: factor / limit for variable, factor in terms.items()}
                rows.append((scaled, -inf, (limit - constant) / limit))
        # Times are divided by a thousandth of the whole time, for the same reason.
        scale = 1000.0 / sum(self.problem["nodes"]["seconds"][: self.F + self.B])

        highs = highspy.Highs()
        highs.setOptionValue("output_flag", False)
        highs.setOptionValue("time_limit", float(time_limit))
        highs.setOptionValue("mip_rel_gap", 0.0)
        highs.setOptionValue("mip_abs_gap", max(1e-4, gap_seconds * scale))
        highs.passModel(self._linear_program(rows, scale))
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = list(start)
            highs.setSolution(solution)
        highs.run()

        info = highs.getInfo()
        model_status = highs.getModelStatus()
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        status = "feasible" if found else "unknown"
        if model_status == highspy.HighsModelStatus.kOptimal:
            status = "optimal"
        elif model_status == highspy.HighsModelStatus.kInfeasible:
            status = "infeasible"
        steps = seconds = None
        if found:
            steps = self.schedule(np.array(highs.getSolution().col_value))
            seconds = sum(self.problem["nodes"]["seconds"][node] for node, slot in steps if slot > 0 and node < self.F)
        return Solution(
            status,
            seconds,
            max(0.0, info.mip_dual_bound / scale) if status != "infeasible" else float("inf"),
            steps,
            highs.getRunTime(),
            sum(self.binary),
            len(rows),
        )
