"""Concatenations that take no launch on `opencl`: what they join is written where the whole stands."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.compiled.launch_list import Joint, StepList, joined
from partita.accelerators.tvm.compiled.stepwise import CompiledSteps
from partita.passes.infer import infer
from tests.accelerators.tvm.opencl_nets import Value, numbers, unit, x

pytest.importorskip("tvm")

pytestmark = pytest.mark.usefixtures("opencl")

IMAGE = 1, 4, 16, 16
"""An image whose channels begin at multiples of 512 bytes."""


def conv(value: Value, channels: int, outs: int = 4, seed: int = 1) -> Value:
    return pt.op("Conv", value, pt.constant(numbers(outs, channels, 3, 3, seed=seed) / 10), pads=[1, 1, 1, 1])


def together(*values: Value) -> Value:
    return pt.op("Concat", *values, axis=1)


def model_of(*outputs: Value) -> tuple[pt.CompiledModel, list[np.ndarray], list[np.ndarray]]:
    """The net on `opencl`, what it computes, and what the reference computes."""
    graph = pt.Graph(list(outputs), name="net")
    shape = tuple(graph.inputs[0][0].type.shape)  # type: ignore[union-attr]
    data = numbers(*(3 if isinstance(size, str) else size for size in shape))
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    return model, list(model(data)), list(pt.compile(graph, "reference")(data))


def layers(model: pt.CompiledModel) -> list[str]:
    return [launch.layer_type for launch in unit(model).launches]


def dense(given: Value) -> Value:
    """Each layer reads all layers before it, as in a DenseNet."""
    value = conv(given, 4)
    for layer in range(3):
        value = together(value, conv(pt.op("Relu", value), 4 * (layer + 1), seed=layer))
    return pt.op("Tanh", value)


def branches(given: Value) -> Value:
    """Several ways from one value, joined, and a view of one of them read elsewhere too."""
    first, second = conv(given, 4), pt.op("Sigmoid", given)
    joint = together(first, second)
    return pt.op("Add", pt.op("Relu", joint), pt.op("ReduceMax", pt.op("Reshape", first, pt.constant(np.array([1, -1])))))


@pytest.mark.parametrize("net", [dense, branches])
@pytest.mark.thinned(2)
def test_what_is_joined_is_written_in_its_place(net: Callable[[Value], Value]) -> None:
    model, ours, wanted = model_of(net(x(*IMAGE)))
    assert "Concat" not in layers(model)
    np.testing.assert_allclose(ours[0], wanted[0], 1e-5, 1e-5)


Case = Callable[[Value, Value], tuple[Value, ...]]
"""The outputs of a net, from an input and from a value that a kernel makes of it."""

KEPT: dict[str, tuple[Case, tuple[int, ...]]] = {
    "an input": (lambda given, value: (pt.op("Relu", together(given, value)),), IMAGE),
    "a constant": (lambda given, value: (pt.op("Relu", together(value, pt.constant(numbers(*IMAGE)))),), IMAGE),
    "a result": (lambda given, value: (together(value, pt.op("Tanh", given)),), IMAGE),
    "a part that is a result": (lambda given, value: (pt.op("Relu", together(value, pt.op("Tanh", given))), value), IMAGE),
    "one value twice": (lambda given, value: (pt.op("Relu", together(value, value)),), IMAGE),
    "several images": (lambda given, value: (pt.op("Relu", together(conv(given, 4), value)),), (2, *IMAGE[1:])),
    "parts that begin anywhere": (lambda given, value: (pt.op("Relu", together(conv(given, 4, 3), value)),), (1, 4, 7, 7)),
    "one value in two": (
        lambda given, value: (
            pt.op("Neg", together(value, pt.op("Tanh", given))), pt.op("Exp", together(pt.op("Relu", given), value)),
        ),
        IMAGE,
    ),
}


@pytest.mark.parametrize("case", KEPT)
@pytest.mark.thinned(2)
def test_what_cannot_be_written_in_its_place_is_copied(case: str) -> None:
    net, shape = KEPT[case]
    given = x(*shape)
    model, ours, wanted = model_of(*net(given, pt.op("Sigmoid", given)))
    assert layers(model).count("Concat") == 1
    for one, other in zip(ours, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-5)


def test_known_parts_of_a_graph_for_any_size() -> None:
    given, row = pt.variable("given", "float32", ("N", 128)), x(1, 128)
    joint = pt.op("Concat", pt.op("Sigmoid", row), pt.op("Tanh", row), axis=1)
    graph, data = pt.Graph([pt.op("Relu", given), pt.op("Neg", joint)], name="net"), [numbers(3, 128), numbers(1, 128, seed=1)]
    model = pt.compile(graph, "opencl", config={"CACHE_DIR": ""})
    assert "compiled once for any size" in str(model.report)
    assert not any("Concat" in str(kernel.body) for kernel in model.kernels())
    for ours, wanted in zip(model(*data), pt.compile(graph, "reference")(*data), strict=True):
        np.testing.assert_allclose(ours, wanted, 1e-5, 1e-5)


def test_it_travels(tmp_path: Path) -> None:
    path = tmp_path / "net.partita"
    model, ours, _ = model_of(dense(x(*IMAGE)))
    model.export(path)
    np.testing.assert_array_equal(pt.import_model(path)(numbers(*IMAGE))[0], ours[0])


def test_a_part_beyond_its_piece_is_no_export() -> None:
    graph, device = infer(pt.Graph([dense(x(*IMAGE))], name="net")), accelerator("opencl")
    config = device.full_config({})
    compiled = device.compile(graph, config)
    assert isinstance(compiled, CompiledSteps)
    steps = compiled.step_list
    assert isinstance(steps, StepList) and steps.parts
    data = compiled.export()
    (length,) = struct.unpack_from("<Q", data)
    words = json.loads(data[8 : 8 + length])
    words["parts"][0][1] += steps.blocks[steps.parts[0].block]
    head = json.dumps(words).encode()
    forged = b"".join([struct.pack("<Q", len(head)), head, data[8 + length :]])
    assert device.import_(data, graph, config, compiled.export_weights())
    with pytest.raises(pt.PartitaError, match="for less memory"):
        device.import_(forged, graph, config, compiled.export_weights())


@settings(deadline=None)
@given(st.data())
def test_parts_share_nothing(data: st.DataObject) -> None:
    """Of values that are joined at random none is in the place of another, unless it is a part of it."""
    sizes = [data.draw(st.integers(0, 6)) * 8 for _ in range(6)]
    joints: dict[int, Joint] = {}
    for call in range(data.draw(st.integers(0, 5))):
        inputs = tuple(data.draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3)))
        joints[call] = Joint(inputs, len(sizes))
        sizes.append(sum(sizes[value] for value in inputs))
    fixed = data.draw(st.sets(st.integers(0, len(sizes) - 1), max_size=2))
    dropped, inside = joined(joints, sizes, fixed, data.draw(st.sampled_from([1, 16])))
    places = {part.value: (part.whole, part.first) for part in inside}
    assert not fixed & {value for part in inside for value in (part.value, part.whole)}
    assert all(part.whole not in places for part in inside) and len(places) == len(inside)
    for call in dropped:
        base, first = places.get(joints[call].whole, (joints[call].whole, 0))
        for value in joints[call].inputs:
            assert places[value] == (base, first)
            first += sizes[value]
