"""Reader of ONNX files: a chain of dense layers and cells. Only the messages that it needs are read, each bounded.

Reference: the wire format of Protocol Buffers and onnx.proto, IR version 3 and later.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path as FilePath

import numpy as np

from ccenv.agents.learned.steps import Cell, Linear, Step
from ccenv.base.errors import InputError, did_you_mean, shown
from ccenv.base.foreign import read_bounded

MAX_BYTES = 16 << 20
MAX_NODES = 256
MAX_NUMBERS = 1 << 20  # of one tensor
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_INTEGER = 7
_TYPES = {1: "<f4", _INTEGER: "<i8", 11: "<f8"}
_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""ONNX positions of the gates in PyTorch's order (ONNX: update, reset, hidden; input, output, forget, cell)."""
_FIRST_STATE, _PEEPHOLES = 5, 7  # positions among the inputs of a cell
_AXES_SWAPPED = ([1, 0, 2], [0, 2, 1, 3])  # decisions and flows; the same for the output of a cell, with its one direction
_PASSED = ("Identity", "Flatten", "Dropout", "Cast", "Reshape", "Squeeze", "Unsqueeze")


class _Damaged(Exception):
    """Bytes that are not a valid message."""


@dataclass
class _Node:
    """One operation, the names of its inputs and outputs, and its attributes."""

    operation: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    numbers: dict[str, float] = field(default_factory=dict)
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    lists: dict[str, list[int]] = field(default_factory=dict)
    words: dict[str, bytes] = field(default_factory=dict)
    tensor_type: int = 0


@dataclass
class _Graph:
    """Operations, constants by name, and the names of inputs and outputs."""

    nodes: list[_Node] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def read_onnx(file: FilePath, output: str = "") -> list[Step]:
    """Return the steps of the network from the graph's input to the named output, or to the first.

    Raises InputError for a damaged file, or a graph that is no chain of allowed operations.
    """
    content = read_bounded(file, MAX_BYTES)
    try:
        graph = _read_model(content)
    except (_Damaged, struct.error, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not an ONNX file ({error})") from None
    if not graph.outputs:
        raise InputError(f"{file}: the graph has no output")
    output_name = output or graph.outputs[0]
    if output_name not in graph.outputs:
        raise InputError(f"{file}: no output {shown(output_name)}.{did_you_mean(output_name, graph.outputs)}")
    return _follow_chain(graph, output_name, file)


def _follow_chain(graph: _Graph, output: str, file: FilePath) -> list[Step]:
    makers = {name: node for node in graph.nodes for name in node.outputs}
    constants = graph.constants | {
        node.outputs[0]: node.tensors["value"] for node in graph.nodes if node.operation == "Constant" and "value" in node.tensors
    }
    states = _find_first_states(graph, makers, constants, file)
    inputs = [name for name in graph.inputs if name not in graph.constants and name not in states]
    if len(inputs) != 1:
        raise InputError(f"{file}: inputs {', '.join(map(shown, inputs)) or 'none'}; one is needed, the observation")
    steps: list[list[Step]] = []
    current = output
    for _ in range(MAX_NODES):
        if current == inputs[0]:
            return _widen([step for group in reversed(steps) for step in group])
        if current not in makers:
            raise InputError(f"{file}: nothing makes {shown(current)}")
        node = makers[current]
        free = [name for name in node.inputs if name and name not in constants and name not in states]
        if len(free) != 1:
            raise InputError(f"{file}: {node.operation} takes {len(free)} computed values; the network must be a chain")
        steps.append(_convert_node(node, free[0], constants, file))
        current = free[0]
    raise InputError(f"{file}: the graph goes round in a circle")


def _find_first_states(graph: _Graph, makers: dict[str, _Node], constants: dict[str, np.ndarray], file: FilePath) -> set[str]:
    """Return the names of all values from which the initial states of cells are made; these states must be 0."""
    pending = [name for node in graph.nodes if node.operation in _GATES for name in node.inputs[_FIRST_STATE:_PEEPHOLES] if name]
    names: set[str] = set()
    while pending:
        name = pending.pop()
        if name in names:
            continue
        names.add(name)
        node = makers.get(name)
        value = constants[name] if name in constants else node.tensors.get("value") if node is not None else None
        is_integer = name in graph.integers or (node is not None and node.tensor_type == _INTEGER)
        if value is not None and not is_integer and value.any():
            raise InputError(f"{file}: a cell begins with a state other than 0; the engines' begin at 0")
        pending += [one for one in node.inputs if one] if node is not None and node.operation != "Shape" else []
    return names - set(constants)


def _read_cell(node: _Node, inputs: list[np.ndarray | None], file: FilePath) -> Cell:
    """Return a GRU or LSTM; refuse cells that differ from PyTorch's."""
    order = _GATES[node.operation]
    weight, hidden, bias = [*inputs, None, None, None][1:4]
    peepholes = len(node.inputs) > _PEEPHOLES and bool(node.inputs[_PEEPHOLES])
    odd = [name for name in ("activations", "clip", "input_forget") if node.words.get(name) or node.numbers.get(name)]
    odd += ["peepholes"] * peepholes + ["direction"] * (node.words.get("direction", b"forward") != b"forward")
    odd += ["linear_before_reset 0"] * (node.operation == "GRU" and node.numbers.get("linear_before_reset", 0.0) != 1.0)
    if odd:
        raise InputError(f"{file}: {node.operation} with {', '.join(odd)}; only the cell of PyTorch is played")
    n, gates = 0 if hidden is None else hidden.shape[-1], len(order)
    shapes = [None if array is None else array.shape for array in (weight, hidden, bias)]
    if (
        weight is None
        or hidden is None
        or weight.ndim != 3
        or weight.shape[:2] != (1, gates * n)
        or hidden.shape != (1, gates * n, n)
    ):
        raise InputError(f"{file}: {node.operation} with weights of shapes {shapes[:2]}")
    if bias is not None and bias.shape != (1, 2 * gates * n):
        raise InputError(f"{file}: {node.operation} with a bias of shape {shapes[2]}")

    def sort_gates(array: np.ndarray) -> np.ndarray:
        return np.concatenate([array[gate * n : (gate + 1) * n] for gate in order]).T

    biases = np.zeros(2 * gates * n) if bias is None else bias[0]
    input_bias, state_bias = sort_gates(biases[: gates * n]), sort_gates(biases[gates * n :])
    return Cell(node.operation.lower(), sort_gates(weight[0]), input_bias, sort_gates(hidden[0]), state_bias)


def _convert_node(node: _Node, free: str, constants: dict[str, np.ndarray], file: FilePath) -> list[Step]:
    inputs = [constants.get(name) for name in node.inputs]
    if node.operation in _PASSED:
        return []
    if node.operation == "Tanh":
        return ["tanh"]
    if node.operation == "Relu":
        return ["relu"]
    if node.operation in _GATES and node.inputs[0] == free:
        return [_read_cell(node, inputs, file)]
    if node.operation == "Transpose" and node.lists.get("perm") in _AXES_SWAPPED:
        return []
    if node.operation == "Clip":
        bounds = [float(array.reshape(-1)[0]) for array in inputs if array is not None and array.size]
        bounds = bounds or [node.numbers.get("min", -math.inf), node.numbers.get("max", math.inf)]
        if bounds != [-1.0, 1.0]:
            raise InputError(f"{file}: Clip to {bounds}; only the action is clipped, to [-1, 1]")
        return []
    if node.operation == "Gemm":
        numbers = {"alpha": 1.0, "beta": 1.0, "transA": 0.0, "transB": 0.0} | node.numbers
        if node.inputs[0] != free or inputs[1] is None or inputs[1].ndim != 2 or numbers["transA"]:
            raise InputError(f"{file}: Gemm whose second input is no matrix of weights")
        weight = numbers["alpha"] * (inputs[1].T if numbers["transB"] else inputs[1])
        bias = np.zeros(weight.shape[1]) if len(inputs) < 3 or inputs[2] is None else numbers["beta"] * inputs[2]
        return [_make_linear(weight, bias, file)]
    if node.operation == "MatMul":
        matrix = inputs[1] if len(inputs) == 2 and node.inputs[0] == free else None
        if matrix is None or matrix.ndim != 2:
            raise InputError(f"{file}: MatMul whose second input is no matrix of weights")
        return [_make_linear(matrix, np.zeros(matrix.shape[1]), file)]
    if node.operation in ("Add", "Sub", "Mul", "Div") and len(inputs) == 2:
        first = node.inputs[0] == free
        other = inputs[1] if first else inputs[0]
        if other is not None and (first or node.operation in ("Add", "Mul")) and other.size == max(other.shape[-1:], default=1):
            return [_make_elementwise(node.operation, other.reshape(-1))]
    raise InputError(
        f"{file}: operation {shown(node.operation)}; Gemm, MatMul, Add, Sub, Mul, Div, Tanh, Relu, GRU and LSTM are allowed"
    )


def _widen(steps: list[Step]) -> list[Step]:
    """Broadcast operations with a single number to the width of the next or previous layer."""
    for place, step in enumerate(steps):
        if isinstance(step, Linear) and step.weight.shape == (1, 1):
            after = [s.weight.shape[0] for s in steps[place + 1 :] if isinstance(s, Linear)]
            before = [s.weight.shape[1] for s in steps[:place] if isinstance(s, Linear)]
            width = (after or before[-1:] or [1])[0]
            if width <= MAX_NODES:
                steps[place] = Linear(step.weight[0, 0] * np.eye(width), np.full(width, step.bias[0]))
    return steps


def _make_linear(weight: np.ndarray, bias: np.ndarray, file: FilePath) -> Linear:
    if bias.size not in (1, weight.shape[1]):
        raise InputError(f"{file}: weights of shape {weight.shape} with a bias of shape {bias.shape}")
    return Linear(weight, np.broadcast_to(bias.reshape(-1), (weight.shape[1],)).copy())


def _make_elementwise(operation: str, values: np.ndarray) -> Linear:
    """Return x + v, x - v, x * v or x / v as a layer."""
    ones, zeros = np.ones_like(values), np.zeros_like(values)
    scale = values if operation == "Mul" else 1.0 / values if operation == "Div" else ones
    shift = values if operation == "Add" else -values if operation == "Sub" else zeros
    return Linear(np.diag(scale), shift)


def _read_model(content: bytes) -> _Graph:
    graphs = [value for number, value in _read_fields(content) if number == 7 and isinstance(value, bytes)]
    if len(graphs) != 1:
        raise _Damaged(f"{len(graphs)} graphs")
    graph = _Graph()
    for number, value in _read_fields(graphs[0]):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            graph.nodes.append(_read_node(value))
            if len(graph.nodes) > MAX_NODES:
                raise _Damaged(f"more than {MAX_NODES} operations")
        elif number == 5:
            name, array, data_type = _read_tensor(value)
            graph.constants[name] = array
            graph.integers |= {name} if data_type == _INTEGER else set()
        elif number in (11, 12):
            (graph.inputs if number == 11 else graph.outputs).append(_read_text(value, 1))
    return graph


def _read_node(content: bytes) -> _Node:
    node = _Node()
    for number, value in _read_fields(content):
        if not isinstance(value, bytes):
            continue
        if number == 1:
            node.inputs.append(value.decode())
        elif number == 2:
            node.outputs.append(value.decode())
        elif number == 4:
            node.operation = value.decode()
        elif number == 5:
            _read_attribute(value, node)
    return node


def _read_attribute(content: bytes, node: _Node) -> None:
    name = _read_text(content, 1)
    for number, value in _read_fields(content):
        if number == 2 and isinstance(value, bytes) and len(value) == 4:
            node.numbers[name] = struct.unpack("<f", value)[0]
        elif number == 3 and isinstance(value, int):
            node.numbers[name] = float(value)
        elif number == 4 and isinstance(value, bytes):
            node.words[name] = value
        elif number == 5 and isinstance(value, bytes):
            _, node.tensors[name], node.tensor_type = _read_tensor(value)
        elif number == 8:
            node.lists.setdefault(name, []).extend([value] if isinstance(value, int) else _read_varints(value))
        elif number == 9 and isinstance(value, bytes):
            node.words[name] = value


def _read_tensor(content: bytes) -> tuple[str, np.ndarray, int]:
    """Return name, values and type."""
    shape: list[int] = []
    data_type, name, data = 0, "", b""
    for number, value in _read_fields(content):
        if number == 1:
            shape += [value] if isinstance(value, int) else _read_varints(value)
        elif number == 2 and isinstance(value, int):
            data_type = value
        elif number in (4, 9, 10) and isinstance(value, bytes):  # packed floats, raw, packed doubles
            data += value
        elif number == 7:
            integers = [value] if isinstance(value, int) else _read_varints(value)
            data += b"".join(struct.pack("<Q", one) for one in integers)
        elif number == 8 and isinstance(value, bytes):
            name = value.decode()
        elif number == 14 and value == 1:
            raise _Damaged("its weights lie in another file; export it as one")
    count = math.prod(shape)
    if data_type not in _TYPES:
        raise _Damaged(f"tensor {shown(name)} has type {data_type}; float, double and int64 are known")
    if count > MAX_NUMBERS or count * np.dtype(_TYPES[data_type]).itemsize != len(data):
        raise _Damaged(f"tensor {shown(name)} of shape {shape[:8]} has {len(data)} bytes")
    return name, np.frombuffer(data, _TYPES[data_type]).reshape(shape).astype(np.float64), data_type


def _read_text(content: bytes, index: int) -> str:
    return next((value.decode() for number, value in _read_fields(content) if number == index and isinstance(value, bytes)), "")


def _read_varints(content: bytes) -> list[int]:
    values, at = [], 0
    while at < len(content):
        value, at = _read_varint(content, at)
        values.append(value)
    return values


def _read_fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of the fields of a message: an int for a varint, else bytes."""
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _read_varint(content, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = _read_varint(content, at)
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
        else:
            raise _Damaged(f"wire type {wire}")
        if number == 0 or at + length > len(content):
            raise _Damaged("it ends in the middle of a field")
        yield number, content[at : at + length]
        at += length


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(content):
            raise _Damaged("it ends in the middle of a number")
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise _Damaged("a number of more than ten bytes")
