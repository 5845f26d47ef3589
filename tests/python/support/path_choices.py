"""Programs in which something that the caller gives chooses an object or a value, and calls that choose in turn."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Calls = list[tuple[Any, ...]]
CHOICES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Calls]]] = {}


def choice(name: str, calls: Callable[[], Calls]) -> Callable[[type[nn.Module]], type[nn.Module]]:
    def add(make: type[nn.Module]) -> type[nn.Module]:
        CHOICES[name] = (make, calls)
        return make

    return add


def x(*sizes: int) -> Tensor:
    return torch.randn(*(sizes or (3, 4)))


@torch.jit.interface
class Head(nn.Module):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[empty-body]
        pass


class Tanh(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x)) * self.factor


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(x)))


class TwoLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)


@choice("module_by_dict_key", lambda: [(x(), key) for key in "aba"])
class ModuleByDictKey(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleDict({"a": Tanh(), "b": Tanh(2.0)})

    def forward(self, x: Tensor, task: str) -> Tensor:
        shared = x
        for head in self.heads.values():
            shared = shared + head(x)
        chosen: Head = self.heads[task]  # type: ignore[assignment]
        return shared * chosen.forward(x)


@choice("module_by_index", lambda: [(x(), index) for index in (0, 1, 0)])
class ModuleByIndex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([Tanh(), TwoLayers()])

    def forward(self, x: Tensor, task: int) -> Tensor:
        chosen: Head = self.heads[task]  # type: ignore[assignment]
        return chosen.forward(x)


@choice("module_by_size", lambda: [(x(2, 4),), (x(3, 4),), (x(4, 4),)])
class ModuleBySize(ModuleByIndex):
    def forward(self, x: Tensor) -> Tensor:
        chosen: Head = self.heads[x.size(0) % 2]  # type: ignore[assignment]
        return chosen.forward(x)


@choice("module_by_data", lambda: [(torch.ones(3, 4),), (-torch.ones(3, 4),), (torch.ones(3, 4),)])
class ModuleByData(ModuleByIndex):
    def forward(self, x: Tensor) -> Tensor:
        chosen: Head = self.heads[int(x[0, 0] > 0)]  # type: ignore[assignment]
        return chosen.forward(x)


@choice("modules_in_a_loop", lambda: [(x(), count) for count in (2, 1, 2)])
class ModulesInALoop(ModuleByIndex):
    def forward(self, x: Tensor, count: int) -> Tensor:
        for i in range(count):
            layer: Head = self.heads[i]  # type: ignore[assignment]
            x = layer.forward(x)
        return x


@choice("module_of_an_interface_beside", lambda: [(x(), index) for index in (0, 1, 0)])
class ModuleOfAnInterfaceBeside(ModuleByIndex):
    beside: Head

    def __init__(self) -> None:
        super().__init__()
        self.beside = Tanh()  # type: ignore[assignment]
        self.last = nn.Linear(4, 4)

    def forward(self, x: Tensor, task: int) -> Tensor:
        chosen: Head = self.heads[task]  # type: ignore[assignment]
        return self.last(self.beside.forward(x)) + chosen.forward(x)


@choice("module_in_a_list_of_the_method", lambda: [(x(), index) for index in (0, 1, 0)])
class ModuleInAListOfTheMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Tanh(), TwoLayers()

    def forward(self, x: Tensor, index: int) -> Tensor:
        modules: list[Head] = [self.one, self.two]  # type: ignore[list-item]
        return modules[index].forward(x) + self.one(x)


@choice("dtype", lambda: [(x(), dtype) for dtype in (torch.float32, torch.float64, torch.float32)])
class ByDtype(TwoLinears):
    def forward(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        y = self.a(x).to(dtype)
        if y.dtype == torch.float64:
            return y * 3
        return y * 2


@choice("keepdim", lambda: [(x(), keep) for keep in (True, False, True)])
class ByKeepdim(TwoLinears):
    def forward(self, x: Tensor, keep: bool) -> Tensor:
        y = self.a(x).sum(1, keepdim=keep)
        if y.dim() == 2:
            return y * 3
        return y * 2


@choice("squeeze", lambda: [(x(3, size, 4),) for size in (1, 2, 1)])
class BySqueeze(TwoLinears):
    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).squeeze(1)
        if y.dim() == 2:
            return y * 3
        return y * 2


@choice("length_of_sizes", lambda: [(x(3, 1, 4),), (x(3, 2, 4),), (x(1, 1, 4),)])
class ByLengthOfSizes(TwoLinears):
    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x).squeeze()
        result = y
        for size in y.shape:
            result = result * size
        return result


@choice("first_dimension", lambda: [(x(2, 3, 4), dim) for dim in (0, 1, 2)])
class ByFirstDimension(TwoLinears):
    def forward(self, x: Tensor, dim: int) -> Tensor:
        y = self.a(x).flatten(dim)
        if y.ndim == 2:
            return y * 3
        return y * 2


@choice("layout_of_a_written_tensor", lambda: [(x(4, 3).t(),), (x(),), (x(4, 3).t(),)])
class LayoutOfAWrittenTensor(TwoLinears):
    def forward(self, x: Tensor) -> Tensor:
        if x.size(0) > 100:
            return x
        y = x.detach().reshape(-1)
        y.mul_(2)
        return self.a(y.view(3, 4)) + x


@choice("type_of_a_written_tensor", lambda: [(x().double(), 1), (x(), 1), (x().double(), 2)])
class TypeOfAWrittenTensor(TwoLinears):
    def forward(self, x: Tensor, count: int) -> Tensor:
        y = x.detach().to(torch.float32)
        for _ in range(count):
            y.mul_(2)
        return self.a(y) + x


@choice("none", lambda: [(x(), y) for y in (None, x(), None, x())])
class ByNone(TwoLinears):
    def forward(self, x: Tensor, y: Tensor | None) -> Tensor:
        z = self.a(x)
        if y is not None:
            z = z * y
        return z if y is None else self.b(z)


@choice("optionals_in_a_list", lambda: [(x(), y) for y in ([None, x()], [x(), None], [None, None])])
class ByOptionalsInAList(TwoLinears):
    def forward(self, x: Tensor, ys: list[Tensor | None]) -> Tensor:
        for y in ys:
            x = self.b(x) if y is None else self.a(x) + y
        return x


@choice("length", lambda: [(x(), [x() for _ in range(count)]) for count in (1, 2, 0, 1)])
class ByLength(TwoLinears):
    def forward(self, x: Tensor, ys: list[Tensor]) -> Tensor:
        if len(ys) == 0:
            return self.a(x)
        for y in ys:
            x = self.b(x) + y
        return x


@choice("keys", lambda: [(x(), {key: x() for key in keys}) for keys in ("ab", "ba", "c", "a")])
class ByKeys(TwoLinears):
    def forward(self, x: Tensor, values: dict[str, Tensor]) -> Tensor:
        if "a" in values:
            x = self.a(x) * values["a"]
        for key, value in values.items():
            x = self.b(x) + value * len(key)
        return x


@choice("index", lambda: [(x(), index, count) for index, count in ((1, 3), (2, 3), (2, 2), (1, 3))])
class ByIndex(TwoLinears):
    def forward(self, x: Tensor, index: int, count: int) -> Tensor:
        results = [x]
        for _ in range(count):
            results.append(self.a(results[-1]))
        return results[index] + results[-index]


@choice("string", lambda: [(x(), name) for name in ("relu", "tanh", "Relu", "none", "relu")])
class ByString(TwoLinears):
    def forward(self, x: Tensor, name: str) -> Tensor:
        if name.lower() == "relu":
            return torch.relu(self.a(x))
        if name in ["tanh", "t"]:
            return torch.tanh(self.a(x))
        return self.b(x)


@choice("default_argument", lambda: [(x(),), (x(), 2), (x(), 2, "b"), (x(),)])
class ByDefaultArgument(TwoLinears):
    def forward(self, x: Tensor, count: int = 1, which: str = "a") -> Tensor:
        for _ in range(count):
            x = self.a(x) if which == "a" else self.b(x)
        return x


@choice("element_of_a_tuple", lambda: [(x(), (x(), count)) for count in (1, 2, 1)])
class ByElementOfATuple(TwoLinears):
    def forward(self, x: Tensor, pair: tuple[Tensor, int]) -> Tensor:
        y, _ = pair
        for _ in range(pair[1]):
            x = self.a(x) + y
        return x


@choice("numbers_in_a_list", lambda: [(x(), numbers) for numbers in ([1, 2], [2, 1], [1], [1, 2])])
class ByNumbersInAList(TwoLinears):
    def forward(self, x: Tensor, numbers: list[int]) -> Tensor:
        for number in numbers:
            x = self.a(x) if number == 1 else self.b(x) * number
        return x


@choice("attribute_that_is_none_at_times", lambda: [(x(),)] * 5)
class ByAttributeThatIsNoneAtTimes(TwoLinears):
    count: int | None

    def __init__(self) -> None:
        super().__init__()
        self.count = None

    def forward(self, x: Tensor) -> Tensor:
        count = self.count
        y = self.a(x)
        if count is None:
            self.count = 1
        elif count > 1:
            y = self.b(y)
            self.count = None
        else:
            self.count = count + 1
        return y


@choice("tensor_attribute_that_is_none_at_times", lambda: [(x(),)] * 4)
class ByTensorAttributeThatIsNoneAtTimes(TwoLinears):
    cache: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.cache = None

    def forward(self, x: Tensor) -> Tensor:
        cache = self.cache
        y = self.a(x)
        if cache is None:
            self.cache = x.detach() * 2
        else:
            y = y + cache
            self.cache = None
        return y
