"""Planning problems of many shapes that are small enough to be solved exactly.

Each problem is a dict in the format ``aten_recompute.problem/1``. Times and sizes are integers, in milliseconds and
MiB, with the proportions of real operators: matrix products and convolutions are slow; all other operators are fast,
and their results as large. Every forward node makes one tensor. No node overwrites an operand or makes a view, because
the exact model supports neither.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

MIB = 2**20
Problem = dict[str, Any]

INPUTS, OUTPUT, NOTHING = "inputs", "output", "nothing"


class Net:
    """A forward, written operator by operator; `problem` adds the backward.

    The backward of an operator is one node. It reads the gradient of the operator's output and, depending on `reads`,
    the operator's inputs, its output, or nothing of the forward. It makes the gradients of the inputs; if an input has
    a gradient already, it reads that, too, and makes the sum.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.producer: list[int] = []
        self.bytes: list[int] = []
        self.held: list[int] = []
        self.nodes: list[dict[str, Any]] = []
        self.forward: list[dict[str, Any]] = []

    def input(self, mib: int) -> int:
        return self._value("x", -1, mib * MIB, held=1)

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        mib: int,
        milliseconds: int,
        reads: str = INPUTS,
        workspace: int = 0,
        weight: int = 0,
    ) -> int:
        """Adds an operator. Its backward makes a parameter's gradient of `weight` MiB, which the caller keeps."""
        output = self._node(name, inputs, [mib * MIB], milliseconds, workspace, recomputable=1)[0]
        self.forward.append(
            {"inputs": list(inputs), "output": output, "reads": reads, "milliseconds": milliseconds}
            | {"workspace": workspace, "weight": weight}
        )
        return output

    def problem(self, last: int) -> Problem:
        num_forward = len(self.nodes)
        results = [last]
        gradient: dict[int, int] = {last: self._value("gradient", -1, self.bytes[last], held=0)}
        incoming = [gradient[last]]
        for node in reversed(self.forward):
            if node["output"] not in gradient:
                continue  # the loss does not depend on it
            inputs = list(dict.fromkeys(node["inputs"]))
            reads = [gradient[node["output"]]]
            reads += inputs if node["reads"] == INPUTS else []
            reads += [node["output"]] if node["reads"] == OUTPUT else []
            reads += [gradient[value] for value in inputs if value in gradient]
            wanted = [value for value in inputs if not self.held[value]]
            sizes = [self.bytes[value] for value in wanted] + ([node["weight"] * MIB] if node["weight"] else [])
            name = f"{self.names[node['output']]}_backward"
            made = self._node(name, reads, sizes, 2 * node["milliseconds"], node["workspace"], recomputable=0)
            gradient.update(zip(wanted, made, strict=False))  # the gradient of a parameter comes after these
            results += made[len(wanted) :]
        storages = range(len(self.bytes))
        return {
            "format": "aten_recompute.problem/1",
            "num_forward": num_forward,
            "num_nodes": len(self.nodes),
            "nodes": {key: [node[key] for node in self.nodes] for key in self.nodes[0]},
            "values": {"name": self.names, "producer": self.producer, "storages": [[index] for index in storages]},
            "storages": {"bytes": self.bytes, "held": self.held},
            "results": results,
            "incoming": incoming,
            "loss_bytes": self.bytes[last],
        }

    def _value(self, name: str, producer: int, size: int, held: int) -> int:
        self.names.append(f"{name}{len(self.names)}")
        self.producer.append(producer)
        self.bytes.append(size)
        self.held.append(held)
        return len(self.names) - 1

    def _node(
        self,
        name: str,
        inputs: Sequence[int],
        sizes: Sequence[int],
        milliseconds: int,
        workspace: int,
        recomputable: int,
    ) -> list[int]:
        index = len(self.nodes)
        outputs = [self._value(name, index, size, held=0) for size in sizes]
        self.nodes.append(
            {
                "name": name,
                "inputs": list(inputs),
                "outputs": outputs,
                "overwrites": [],
                "seconds": milliseconds / 1000,
                "flops": 0.0,
                "workspace_bytes": workspace * MIB,
                "recomputable": recomputable,
                "is_view": 0,
                "alternatives": [],
                "optional": 0,
            }
        )
        return outputs


def head(net: Net, value: int) -> Problem:
    return net.problem(net.op("mean", [value], 1, 1, NOTHING))


def chain() -> Problem:
    net = Net()
    value = net.input(8)
    for _ in range(12):
        value = net.op("linear", [value], 8, 10)
        value = net.op("gelu", [value], 8, 2)
    return head(net, value)


def hourglass() -> Problem:
    """A chain whose tensors shrink and grow again, as an autoencoder's do."""
    net = Net()
    value = net.input(32)
    for size in [32, 24, 16, 12, 8, 4, 4, 8, 12, 16, 24, 32]:
        value = net.op("conv", [value], size, 4 + size // 2, workspace=2)
        value = net.op("relu", [value], size, 1 + size // 16, OUTPUT)
    return head(net, value)


def residual() -> Problem:
    net = Net()
    value = net.op("conv", [net.input(16)], 16, 12)
    for _ in range(5):
        inner = net.op("norm", [value], 16, 3)
        inner = net.op("relu", [inner], 16, 1, OUTPUT)
        inner = net.op("conv", [inner], 16, 14, workspace=4, weight=1)
        inner = net.op("relu", [inner], 16, 1, OUTPUT)
        inner = net.op("conv", [inner], 16, 14, workspace=4, weight=1)
        value = net.op("add", [value, inner], 16, 2, NOTHING)
    return head(net, value)


def unet() -> Problem:
    net = Net()
    value = net.input(16)
    skips = []
    for size in [32, 16, 8]:
        value = net.op("conv", [value], size, size // 2 + 4)
        value = net.op("relu", [value], size, 2, OUTPUT)
        skips.append((value, size))
        value = net.op("pool", [value], size // 2, 2)
    value = net.op("conv", [value], 8, 8)
    value = net.op("relu", [value], 8, 1, OUTPUT)
    for skip, size in reversed(skips):
        value = net.op("upsample", [value], size, 2, NOTHING)
        value = net.op("concat", [value, skip], 2 * size, 3, NOTHING)
        value = net.op("conv", [value], size, size + 4)
        value = net.op("relu", [value], size, 2, OUTPUT)
    return head(net, value)


def dense() -> Problem:
    """Each layer reads the outputs of all layers before it, as in a DenseNet."""
    net = Net()
    features = [net.op("conv", [net.input(8)], 6, 8)]
    for _ in range(6):
        joined = net.op("concat", features, 6 * len(features), len(features), NOTHING)
        inner = net.op("norm", [joined], 6 * len(features), 1 + len(features))
        inner = net.op("relu", [inner], 6 * len(features), 1 + len(features) // 2, OUTPUT)
        features.append(net.op("conv", [inner], 6, 6 + 3 * len(features)))
    return head(net, net.op("concat", features, 6 * len(features), 4, NOTHING))


def branches() -> Problem:
    """Several branches of different cost that are joined again, as in an Inception network."""
    net = Net()
    value = net.op("conv", [net.input(12)], 12, 10)
    for block in range(3):
        one = net.op("conv", [value], 4, 5)
        two = net.op("conv", [value], 6, 6)
        two = net.op("relu", [two], 6, 1, OUTPUT)
        two = net.op("conv", [two], 6, 16 + block)
        three = net.op("pool", [value], 12, 3)
        three = net.op("conv", [three], 4, 7)
        value = net.op("concat", [one, two, three], 14, 3, NOTHING)
        value = net.op("relu", [value], 14, 2, OUTPUT)
    return head(net, value)


def attention_block(net: Net, value: int, scale: int = 1) -> int:
    normed = net.op("norm", [value], 4 * scale, 1)
    query, key, content = (net.op("linear", [normed], 4 * scale, 6) for _ in range(3))
    scores = net.op("matmul", [query, key], 16 * scale, 5)
    scaled = net.op("div", [scores], 16 * scale, 2, NOTHING)
    weights = net.op("softmax", [scaled], 16 * scale, 4, OUTPUT)
    mixed = net.op("matmul", [weights, content], 4 * scale, 5)
    return net.op("add", [value, net.op("linear", [mixed], 4 * scale, 6)], 4 * scale, 1, NOTHING)


def attention() -> Problem:
    net = Net()
    value = net.op("embed", [net.input(1)], 4, 2)
    for _ in range(3):
        value = attention_block(net, value)
    return head(net, value)


def transformer() -> Problem:
    """Two blocks of attention and a feed-forward part."""
    net = Net()
    value = net.op("embed", [net.input(1)], 4, 2)
    for _ in range(2):
        value = attention_block(net, value)
        inner = net.op("norm", [value], 4, 1)
        inner = net.op("linear", [inner], 16, 22, weight=1)
        inner = net.op("gelu", [inner], 16, 4)
        inner = net.op("linear", [inner], 4, 22, weight=1)
        value = net.op("add", [value, inner], 4, 1, NOTHING)
    return head(net, value)


def shared() -> Problem:
    """One costly value that every layer reads (an encoder's output, a position bias), made from a large one."""
    net = Net()
    given = net.input(8)
    wide = net.op("linear", [given], 24, 20)
    common = net.op("softmax", [net.op("linear", [wide], 12, 16)], 12, 3, OUTPUT)
    value = net.op("embed", [given], 8, 2)
    for _ in range(6):
        inner = net.op("linear", [value], 8, 8)
        inner = net.op("mul", [inner, common], 12, 2)
        value = net.op("linear", [inner], 8, 9)
    return head(net, value)


def wavefront() -> Problem:
    """Two chains that exchange values at each step, as the cells of a recurrent network do."""
    net = Net()
    given = net.input(4)
    state, cell = net.op("embed", [given], 6, 2), net.op("embed", [given], 6, 2)
    for _ in range(6):
        gates = net.op("linear", [state], 16, 9)
        gates = net.op("sigmoid", [gates], 16, 2, OUTPUT)
        cell = net.op("mix", [cell, gates], 6, 2)
        state = net.op("tanh_mul", [cell, gates], 6, 2)
    return head(net, state)


def random_graph(seed: int, length: int = 24) -> Problem:
    generator = random.Random(seed)
    net = Net()
    values = [net.op("conv", [net.input(8)], 8, 5)]
    unread = set(values)
    for _ in range(length):
        inputs = {values[-1]} | set(generator.sample(values[-8:], min(len(values), generator.choice([1, 1, 2]))))
        slow = generator.random() < 0.4
        values.append(
            net.op(
                "slow" if slow else "fast",
                sorted(inputs),
                generator.randint(1, 16),
                generator.randint(8, 20) if slow else generator.randint(1, 3),
                generator.choice([INPUTS, INPUTS, OUTPUT, NOTHING]),
                workspace=generator.choice([0, 0, 4]),
            )
        )
        unread -= inputs
        unread.add(values[-1])
    return head(net, net.op("concat", sorted(unread), 8, 1, NOTHING))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "chain": chain,
    "hourglass": hourglass,
    "residual": residual,
    "unet": unet,
    "dense": dense,
    "branches": branches,
    "attention": attention,
    "transformer": transformer,
    "shared": shared,
    "wavefront": wavefront,
    "random_1": lambda: random_graph(1),
    "random_2": lambda: random_graph(2),
    "random_3": lambda: random_graph(3),
}


def make(name: str) -> Problem:
    return PROBLEMS[name]()


def base_seconds(problem: Problem) -> float:
    return sum(problem["nodes"]["seconds"][: problem["num_nodes"]])
