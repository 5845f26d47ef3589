"""Programs with control flow and containers, and the inputs of several calls of each."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Calls = list[tuple[Any, ...]]
PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Calls]]] = {}


def program(name: str, calls: Callable[[], Calls]) -> Callable[[type[nn.Module]], type[nn.Module]]:
    def add(make: type[nn.Module]) -> type[nn.Module]:
        PROGRAMS[name] = (make, calls)
        return make

    return add


def linears(count: int, width: int = 8) -> nn.ModuleList:
    return nn.ModuleList([nn.Linear(width, width) for _ in range(count)])


def rows(*sizes: int) -> Calls:
    return [(torch.randn(size, 8),) for size in sizes]


@program("dict_between_layers", lambda: [({"x": torch.randn(4, 8), "w": torch.randn(4, 8)},)] * 2)
class DictBetweenLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(4)

    def forward(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        for layer in self.layers:
            values["x"] = torch.tanh(layer(values["x"])) * values["w"]
        return values


@program("early_return", lambda: rows(4, 9, 4, 5))
class EarlyReturn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(3)

    def one(self, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        if y.size(0) > 6:
            return y * 2
        return y

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.one(layer(x))
        return x


@program("skips", lambda: [(torch.randn(4, 8), [torch.randn(4, 8) for _ in range(4)])] * 2)
class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(4)

    def forward(self, x: Tensor, skips: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        outputs: list[Tensor] = []
        for i, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) + skips[i]
            outputs.append(x)
        product = outputs.pop()
        while len(outputs) > 1:
            product = product * outputs.pop()
        return product, outputs, [product, x]


@program("cell_over_time", lambda: [(torch.randn(5, b, 8),) for b in (3, 2, 3)] + [(torch.randn(4, 3, 8),)])
class CellOverTime(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.size(1), 8)
        outputs: list[Tensor] = []
        for t in range(x.size(0)):
            h = torch.tanh(self.inner(x[t]) + self.outer(h))
            if t % 2 == 0:
                h = h * 0.5
            outputs.append(h)
        return torch.stack(outputs)


@program("branches_on_data", lambda: rows(*[4] * 6))
class BranchesOnData(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(4)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            y = self.dropout(torch.tanh(layer(x)))
            if bool(y.sum() > 0):
                x = y * 2
            else:
                x = y - 1
        return x


@program("operand_twice_behind_data", lambda: rows(*[16] * 6))
class OperandTwiceBehindData(nn.Module):
    """The two gradients of an operator with the same operand twice are added one by one, in the operator's order."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.layer(x))
        if bool(y.sum() > 0):
            y = y * 0.7 + (x - x)
        else:
            y = y + torch.cat([x, x, x])[: x.size(0)]
        return y + x * 0.3


@program("statistics_and_sizes", lambda: [(torch.randn(2, 3, s, s),) for s in (24, 20, 32, 12, 24)])
class StatisticsAndSizes(nn.Module):
    """A call that turns out to take another path must not update the statistics twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(3, 3, 3, padding=1) for _ in range(3)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(3) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = torch.relu_(norm(convolution(x)))
            if x.shape[2] > 10:
                x = nn.functional.max_pool2d(x, 2)
        return x


@program("state", lambda: [*rows(4, 4), (torch.randn(4, 8), torch.randn(4, 8)), *rows(4, 4)])
class State(nn.Module):
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.calls: int = 0
        self.sums: dict[str, float] = {"sum": 0.0}
        self.register_buffer("last", torch.zeros(1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        self.calls += 1
        y = torch.tanh(self.layer(x))
        if self.calls % 2 == 0:
            y = y * 2
        if mask is not None:
            y = y * mask
        self.last = y.detach().mean().reshape(1)
        self.sums["sum"] += float(self.last)
        return y * self.sums["sum"]


@program("expert_routing", lambda: rows(12, 12, 7))
class ExpertRouting(nn.Module):
    """A mixture of experts: data decide which rows each expert gets."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = linears(3)

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            row, place = torch.where(chosen == i)
            if row.numel() > 0:
                result = result.index_add(0, row, torch.tanh(expert(x[row])) * weights[row, place].unsqueeze(1))
        return result


@program("slice_assignments", lambda: rows(4, 9, 4))
class SliceAssignments(nn.Module):
    """Parts of tensors that the method made are written to, and the whole is read."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(3)

    def forward(self, x: Tensor) -> Tensor:
        out = x.new_zeros(x.size(0), 8)
        out[1:3] = self.layers[0](x)[1:3]
        mask = torch.zeros(8)
        mask[2:4] = 1.0
        mask[-1] = 0.5
        y = torch.tanh(self.layers[1](out)) * mask
        y[0, 2:] += x[0, 2:]
        y[:, 0].mul_(2.0)
        y.t()[1].fill_(0.25)
        return self.layers[2](y) * y


@program("views_before_writes", lambda: rows(4, 9, 4))
class ViewsBeforeWrites(nn.Module):
    """What was a view before a write shows what was written, to the view itself or to its base."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(2)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layers[0](x)
        rows = y.view(-1, 2, 4)
        column = y[:, 3]
        both = [rows, column]
        y += 1.0
        z = both[0].sum() + both[1].sum()
        rows[:, 1] = torch.sigmoid(rows[:, 0])
        y.unsqueeze(0)[0, :, 6:].copy_(torch.relu(x[:, :2]))
        total = torch.zeros(8)
        for i in range(3):
            before = total.unsqueeze(0)
            total += y.mean(0) + before.sum() + i
        return self.layers[1](y) * z + column.unsqueeze(1), total


@program("pieces", lambda: [(torch.randn(3, 8), torch.randn(3, 4), torch.randn(3, 4))] * 2)
class Pieces(nn.Module):
    """The gates of a cell are pieces of one tensor, to which it writes one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 16)

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(2):
            i, f, g, o = self.layer(torch.cat([h, h * x[:, :4]], 1)).unsafe_chunk(4, 1)
            i.sigmoid_()
            f.sigmoid_()
            g.tanh_()
            o.sigmoid_()
            c = f * c + i * g
            h = o * torch.tanh(c)
        return h, c


@program("dropout_in_place_of_a_view", lambda: [(torch.randn(2, 4, 2, 1),)] * 3)
class DropoutInPlaceOfAView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 1), nn.Linear(16, 4)
        self.dropout = nn.Dropout(0.3, inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.dropout(torch.flatten(self.first(x), 1)))


@program("index_writes", lambda: rows(4, 9, 4))
class IndexWrites(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers[0](x)
        part = y[:, 2:6]
        part[torch.tensor([0, 2])] = x[:2, :4]
        part.masked_fill_(x[:, :4] > 1.0, 0.5)
        y[x > 2.0] = 0.0
        return self.layers[1](y) + part.sum()


@program("dict_of_pairs", lambda: rows(4, 9, 4))
class DictOfPairs(nn.Module):
    """A pyramid of features by name, as models of detection make it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        names, features = ["a", "b"], [x]
        for layer in self.layers:
            features.append(torch.tanh(layer(features[-1])))
        features.pop(0)
        names.append("c")
        pyramid = dict([(name, feature) for name, feature in zip(names, features)])  # noqa: B905, C404
        return {"sum": pyramid["a"] + pyramid["c"], "b": self.layers[0](pyramid["b"])}


@program("break_and_continue", lambda: rows(2, 2, 2, 2, 2, 2))
class BreakAndContinue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linears(2)

    def forward(self, x: Tensor) -> Tensor:
        h = x
        for i in range(3):
            h = self.a(h)
            if float(h[0, 0]) > 0:
                h = self.b(h)
                if float(h[0, 1]) < 0:
                    break
            elif i == 1:
                continue
            h = h * 2
        return h


@program("return_in_a_loop", lambda: rows(2, 2, 2, 2, 2, 2))
class ReturnInALoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
            if bool(x[0, 0] > 0.1):
                return x * 3
        return x


@program("flag_that_ends_a_loop", lambda: rows(2, 2, 2, 2, 2, 2))
class FlagThatEndsALoop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linears(2)

    def forward(self, x: Tensor) -> Tensor:
        done = False
        for _ in range(3):
            if not done:
                x = self.a(x)
                if bool(x.mean() > 0):
                    x = self.b(x)
                    done = True
        return x if done else x * 2


@program("skips_counted_down", lambda: rows(3, 5))
class SkipsCountedDown(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = linears(3), linears(3)

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for layer in self.down:
            x = torch.relu(layer(x))
            skips.append(x)
        i = len(skips) - 1
        for layer in self.up:
            x = torch.relu(layer(x + skips[i]))
            i -= 1
        return x


@program("union_of_containers", lambda: [(value,) for value in (torch.randn(2, 8), [torch.randn(2, 8)] * 2)] * 2)
class UnionOfContainers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linears(2)

    def forward(self, x: Tensor | list[Tensor]) -> Tensor:
        if isinstance(x, Tensor):
            return self.a(x)
        else:
            return self.b(x[0]) * self.a(x[1])


@program("any", lambda: [(value,) for value in ([torch.randn(2, 8)], torch.randn(2, 8), [torch.randn(2, 8)])])
class AnyValue(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linears(2)

    def forward(self, x: Any) -> Tensor:
        if torch.jit.isinstance(x, list[Tensor]):
            return self.a(x[0])
        if torch.jit.isinstance(x, Tensor):
            return self.b(x)
        return self.a.weight  # type: ignore[return-value]


@program("dict_of_unions", lambda: [({"x": value},) for value in (torch.randn(2, 8), [torch.randn(2, 8)])] * 2)
class DictOfUnions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = linears(2)

    def forward(self, values: dict[str, Tensor | list[Tensor]]) -> Tensor:
        x = values["x"]
        return self.a(x) if isinstance(x, Tensor) else self.b(x[0])


@program("new_dicts", lambda: rows(4, 9))
class NewDicts(nn.Module):
    """Makes dicts without operands, as detectors of torchvision do by OrderedDict()."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = linears(3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = torch.jit.annotate(dict[str, Tensor], OrderedDict())
        for i, layer in enumerate(self.layers):
            x = torch.tanh(layer(x))
            features[str(i)] = x
        sums = torch.jit.annotate(dict[str, Tensor], dict())  # noqa: C408  (a literal is another operator)
        for name, feature in features.items():
            sums[name] = torch.sin(feature) + x
        return sums
