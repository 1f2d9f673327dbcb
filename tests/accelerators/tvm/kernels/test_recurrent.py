"""LSTM, GRU and RNN as one product and a kernel for the steps, against numpy in double precision."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.kernels.catalogue import draft_kernel
from partita.accelerators.tvm.machine.machine import Machine
from partita.graph.interpret import interpret
from partita.graph.numerics.recurrent import ACTIVATION_PARAMETERS
from partita.graph.types import numpy_dtype
from tests.accelerators.tvm.running import as_double, check, compiled, doubled, error, normals, schedules

pytest.importorskip("tvm")

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}


@attrs.frozen
class Layer:
    """A recurrent layer with random weights."""

    op: str
    steps: int = 5
    batch: int = 2
    inputs: int = 6
    hidden: int = 8
    direction: str = "forward"
    lengths: tuple[int, ...] | None = None
    has_states: bool = True
    has_biases: bool = True
    has_peepholes: bool = True
    are_values: bool = False
    """Are the weights inputs of the graph?"""
    dtype: str = "float32"
    outputs: tuple[str, ...] = ("y", "h", "c")
    attributes: dict[str, Any] = attrs.field(factory=dict)

    def graph(self) -> tuple[pt.Graph, list[np.ndarray]]:
        """The graph, and values of its inputs."""
        normal, arrays = normals(self.hidden), []
        ways, rows = 2 if self.direction == "bidirectional" else 1, GATES[self.op] * self.hidden
        batch_first = bool(self.attributes.get("layout", 0))
        given: list[Any] = []

        def add(shape: tuple[int, ...], scale: float, is_value: bool) -> None:
            array = (normal(*shape) * np.float32(scale)).astype(numpy_dtype(self.dtype))
            if is_value:
                arrays.append(array)
                given.append(pt.variable(f"x{len(given)}", self.dtype, shape))
            else:
                given.append(pt.constant(array))

        add((self.batch, self.steps, self.inputs) if batch_first else (self.steps, self.batch, self.inputs), 1.0, True)
        add((ways, rows, self.inputs), self.inputs**-0.5, self.are_values)
        add((ways, rows, self.hidden), self.hidden**-0.5, self.are_values)
        given.append(None)
        if self.has_biases:
            given.pop()
            add((ways, 2 * rows), 0.5, self.are_values)
        given.append(None)
        if self.lengths is not None:
            given[-1] = pt.variable("lengths", "int32", (self.batch,))
            arrays.append(np.array(self.lengths, "int32"))
        state = (self.batch, ways, self.hidden) if batch_first else (ways, self.batch, self.hidden)
        for _ in range(2 if self.op == "LSTM" else 1):
            given.append(None)
            if self.has_states:
                given.pop()
                add(state, 1.0, self.are_values)
        if self.op == "LSTM" and self.has_peepholes:
            add((ways, 3 * self.hidden), 0.5, self.are_values)
        names = [name if name in self.outputs else "" for name in "yhc"[: 3 if self.op == "LSTM" else 2]]
        attributes = {"hidden_size": self.hidden, "direction": self.direction, **self.attributes}
        node = pt.op(self.op, *given, name="layer", output_names=names, opset=22, **attributes)
        inputs = [value for value in given if value is not None and value.op is None]
        outputs = [entry for entry in node.outputs if entry.name]
        return pt.apply_pass(pt.Graph(outputs, inputs=inputs, opsets={"": 22}), "InferShape"), arrays


def held(layer: Layer, limit: float = 4e-6, **config: Any) -> list[str]:
    """The schedules of the layer, whose results were held against numpy in double precision."""
    return schedules(check(*layer.graph(), limit=limit, **config))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_each_layer_in_each_direction(op: str, direction: str) -> None:
    assert held(Layer(op, direction=direction, lengths=(3, 5), hidden=20)) == ["gemm", "recurrent"]


@pytest.mark.parametrize("op", GATES)
def test_the_batch_may_come_first(op: str) -> None:
    held(Layer(op, batch=3, lengths=(0, 5, 1), direction="bidirectional", attributes={"layout": 1}))


def test_a_gru_may_reset_after_the_product() -> None:
    held(Layer("GRU", direction="bidirectional", attributes={"linear_before_reset": 1}))
    held(Layer("GRU", has_biases=False, attributes={"linear_before_reset": 1, "clip": 0.3}))


def test_a_lstm_may_forget_what_it_does_not_take_in() -> None:
    held(Layer("LSTM", attributes={"input_forget": 1, "clip": 0.4}))


@pytest.mark.parametrize("op", GATES)
def test_weights_may_be_values(op: str) -> None:
    assert "recurrent" in held(Layer(op, hidden=7, are_values=True, direction="bidirectional"))


@pytest.mark.parametrize("name", sorted(ACTIVATION_PARAMETERS))
def test_each_activation(name: str) -> None:
    parameters = ACTIVATION_PARAMETERS[name]
    given = {f"activation_{key}": [value * 0.5 + 0.1] for key, value in parameters.items()}
    held(Layer("RNN", attributes={"activations": [name], **given}))


def test_the_directions_may_have_activations_of_their_own() -> None:
    names = ["Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign", "LeakyRelu"]
    held(Layer("LSTM", direction="bidirectional", attributes={"activations": names, "activation_alpha": [0.3, 0.2]}))


def test_results_that_nobody_reads_may_be_left_out() -> None:
    for outputs in (("y",), ("h",), ("c",), ("h", "c")):
        held(Layer("LSTM", outputs=outputs))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (3, 1, 3), (1, 9, 5), (2, 7, 33), (3, 13, 48)], ids=str)
@pytest.mark.parametrize("threads", [1, 3])
def test_sizes_that_no_tile_divides(sizes: tuple[int, int, int], threads: int) -> None:
    steps, batch, hidden = sizes
    held(Layer("GRU", steps, batch, hidden=hidden, direction="bidirectional"), NUM_THREADS=threads)


@pytest.mark.parametrize("op", GATES)
def test_threads_share_the_panels_of_a_large_state(op: str) -> None:
    layer = Layer(op, 3, 1, hidden=600, has_peepholes=False)
    model = check(*layer.graph(), limit=4e-6, NUM_THREADS=2)
    assert any("parallel pair" in kernel.text for kernel in model.kernels())


def test_threads_share_the_sequences_of_a_batch() -> None:
    model = check(*Layer("LSTM", 4, 16, hidden=64).graph(), limit=4e-6, NUM_THREADS=2)
    assert any("parallel task" in kernel.text for kernel in model.kernels() if kernel.schedule == "recurrent")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", GATES)
def test_numbers_of_two_bytes_are_rounded_once(op: str, dtype: str) -> None:
    layer = Layer(op, dtype=dtype, outputs=("y", "h"), direction="bidirectional")
    graph, inputs = layer.graph()
    wanted = interpret(doubled(graph), [as_double(x) for x in inputs])
    outputs = compiled(graph).run(inputs)
    for value, exact in zip(outputs, wanted, strict=True):
        assert value.dtype.name == dtype and error(value, exact) <= {"float16": 1e-3, "bfloat16": 8e-3}[dtype]


def test_what_is_no_number_stays_so() -> None:
    graph, (x,) = Layer("LSTM", batch=3).graph()
    x[2, 1, 0] = np.nan
    (y, *_) = compiled(graph).run([x])
    assert np.isnan(y[2:, 0, 1]).all() and not np.isnan(y[:2]).any() and not np.isnan(y[:, 0, ::2]).any()


def test_a_length_beyond_the_steps_is_an_error() -> None:
    graph, (x, _) = Layer("GRU", lengths=(5, 5)).graph()
    model = compiled(graph)
    with pytest.raises(pt.PartitaError, match="the length of a sequence is not between 0 and 5"):
        model.run([x, np.array([5, 6], "int32")])


def test_what_no_kernel_computes_is_refused_with_a_reason() -> None:
    answer = accelerator("cpu").query(Layer("LSTM", dtype="float64", lengths=None).graph()[0])
    assert str(answer["layer"]).startswith("kernels of LSTM take bfloat16, float16, float32, and ")


def test_the_layer_is_measured_under_its_own_name() -> None:
    graph, inputs = Layer("LSTM").graph()
    rows = [row for span in pt.compile(graph, "cpu").profile(*inputs).spans for row in span.rows]
    assert {row.node for row in rows} == {"layer"} and {row.status for row in rows} == {"EXECUTED"}


MACHINES = Machine("cpu", "nehalem", 1, 4, 16), Machine("cpu", "znver4", 2, 16, 32)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.arch)
def test_kernels_are_planned_for_any_processor(machine: Machine) -> None:
    graph, _ = Layer("LSTM", hidden=50).graph()
    device = accelerator("cpu")
    calls = [node for node in device.fused(graph, machine).nodes if node.is_call]  # type: ignore[attr-defined]
    drafts = [draft_kernel(make_body(node.subgraph), machine) for node in calls if node.subgraph is not None]
    assert [draft and draft.schedule for draft in drafts] == ["gemm", "recurrent"]


LAYERS = st.builds(
    Layer,
    op=st.sampled_from(sorted(GATES)),
    steps=st.integers(1, 4),
    batch=st.integers(1, 5),
    inputs=st.integers(1, 5),
    hidden=st.sampled_from([1, 2, 5, 8, 9, 17]),
    direction=st.sampled_from(["forward", "reverse", "bidirectional"]),
    has_states=st.booleans(),
    has_biases=st.booleans(),
    has_peepholes=st.booleans(),
    are_values=st.booleans(),
    attributes=st.fixed_dictionaries({"layout": st.integers(0, 1)}, optional={"clip": st.sampled_from([0.2, 2.0])}),
)


@pytest.mark.slow  # each layer is compiled: a second or so
@settings(max_examples=60, deadline=None)
@given(layer=LAYERS, data=st.data())
def test_random_layers(layer: Layer, data: st.DataObject) -> None:
    lengths = data.draw(st.none() | st.tuples(*[st.integers(0, layer.steps)] * layer.batch))
    held(attrs.evolve(layer, lengths=lengths), limit=1e-5)
