"""Calling a compiled model: arguments, outputs, whose memory is whose, threads."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

import partita as pt
from partita.graph.interpret import interpret
from tests.accelerators.hetero.small_devices import Ran, device
from tests.graphs.topologies import alternating

X = np.array([-1.0, 0.5, 2.0, 3.0], np.float32)


def two_inputs() -> pt.Graph:
    a, b = pt.variable("a", "float32", ("n", 2)), pt.variable("b", "float32", ("n", 2))
    return pt.Graph([pt.op("Add", a, b, name="sum"), pt.op("Exp", a, name="exp")], name="net")


@pytest.fixture
def model(beta):
    with pt.compile(two_inputs(), "beta") as result:
        yield result


A, B = np.ones((3, 2), np.float32), np.full((3, 2), 2, np.float32)


def test_inputs_by_position_by_name_and_mixed(model):
    for item in (model(A, B), model({"b": B, "a": A}), model(b=B, a=A), model(A, b=B)):
        np.testing.assert_array_equal(item["sum"], A + B)


def test_outputs_are_a_sequence_that_indexes_by_name(model):
    outputs = model(A, B)
    total, exp = outputs
    assert outputs[0] is outputs["sum"] is total and outputs[-1] is exp and outputs[:1] == [total]
    assert len(outputs) == 2 and outputs.names == ("sum", "exp") and outputs.to_dict() == {"sum": total, "exp": exp}
    assert repr(outputs) == "<Outputs sum: float32[3, 2], exp: float32[3, 2]>"
    with pytest.raises(KeyError, match="there is no output 'summ'\n  Did you mean 'sum'"):
        outputs["summ"]


class Unreadable:
    """Foreign code that fails as it likes."""

    def __array__(self, dtype=None, copy=None):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((A,), {}, "model 'net': input 'b' is missing\n  Its inputs are a: float32[n, 2], b: float32[n, 2]."),
        ((A, B, B), {}, "model 'net': 3 inputs were given for 2"),
        ((A, B), {"a": A}, "model 'net': input 'a' is given by position and by name"),
        ((), {"a": A, "bb": B}, "model 'net': there is no input 'bb'\n  Did you mean 'b'?"),
        (({"a": A}, B), {}, "a dictionary of inputs is the only argument"),
        ((A.astype("f8"), B), {}, 'it is float32, and the array given float64\n  Convert it: array.astype("float32")'),
        ((A.astype(">f4"), B), {}, "it is float32, and the array given float32 in foreign byte order"),
        ((A[0], B), {}, "input 'a': it has 2 dimensions (float32[n, 2]), and the array given 1: (2,)"),
        ((A.T, B), {}, "input 'a': dimension 1 is 2 (float32[n, 2]), and that of the array given 3: (2, 3)"),
        ((A, B[:2]), {}, "input 'b': dimension 0, 'n', is 2 here and 3 in input 'a'"),
        ((None, B), {}, "input 'a': it is None\n  Give an array"),
        ((object(), B), {}, "input 'a': it is float32, and the array given object"),
        ((np.ma.masked_array(A, A > 0), B), {}, "input 'a': some of its elements are masked\n  Fill them"),
        ((Unreadable(), B), {}, "test_running.Unreadable cannot be read as an array: ZeroDivision"),
        (([[1, 2], [3]], B), {}, "input 'a': a builtins.list cannot be read as an array: setting an array element"),
    ],
)
def test_input_errors(model, args, named, message):
    with pytest.raises(pt.InputError) as caught:
        model(*args, **named)
    assert message in str(caught.value)


@pytest.mark.parametrize("other", [B[:2], B.astype("f8"), B.T, np.ma.masked_array(B, B > 0), None], ids=repr)
def test_inputs_are_looked_at_again_once_sizes_are_known_to_fit(model, other):
    for _ in range(2):
        np.testing.assert_array_equal(model(A, B)["sum"], A + B)
        with pytest.raises(pt.InputError, match="input 'b'"):
            model(A, other)
    np.testing.assert_array_equal(model(A[:2], B[:2])["sum"], (A + B)[:2])


def test_python_numbers_take_the_inputs_dtype_where_that_loses_nothing(beta, model):
    np.testing.assert_array_equal(model([[1, 2]], [[0.5, 1.5]])["sum"], np.float32([[1.5, 3.5]]))
    i = pt.variable("i", "int64", ())
    m = pt.compile(pt.Graph([pt.op("Neg", i, name="n")]), "beta")
    assert m(3)[0] == -3 and m(np.int64(3))[0].dtype == np.int64
    with pytest.raises(pt.InputError, match="it is int64, and the array given float64"):
        m(3.0)
    with pytest.raises(pt.InputError, match="it is int64, and the array given bool"):
        m(True)


@pytest.mark.parametrize(
    ("dtype", "number", "message"),
    [
        ("uint8", 300, "it is uint8, which cannot hold 300\n  Give numbers in its range"),
        ("uint64", -1, "it is uint64, which cannot hold -1"),
        ("int32", [0, 2**40], f"it is int32, which cannot hold {2**40}"),
        ("string", [1, 2], "it is string, and the array given int64"),
        ("int4", 8, "it is int4, which cannot hold 8"),
        ("int4", 1.5, "it is int4, and the array given float64"),
        ("float32", 1e300, r"it is float32, which cannot hold 1e+300"),
        ("float16", [1.0, 70000.0], "it is float16, which cannot hold 70000.0"),
    ],
)
def test_python_numbers_out_of_range(beta, dtype, number, message):
    x = pt.variable("x", dtype, None)
    m = pt.compile(pt.Graph([pt.op("Identity", x, name="n")]), "beta")
    with pytest.raises(pt.InputError) as caught:
        m(number)
    assert message in str(caught.value)


def test_an_input_may_be_called_self(beta):
    x = pt.variable("self", "float32", (4,))
    m = pt.compile(pt.Graph([pt.op("Neg", x, name="n")]), "beta")
    for item in (m(self=X), m.start(self=X).result()):
        np.testing.assert_array_equal(item[0], -X)
    assert m.profile(self=X).inputs == "the inputs given"


class WithDlpack:
    """What other libraries' arrays are to us."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_anything_with_dlpack_or_the_array_protocol(model):
    class WithArray:
        def __array__(self, dtype=None, copy=None):
            return A

    np.testing.assert_array_equal(model(WithDlpack(A), WithArray())["sum"], A + A)


@pytest.mark.parametrize("where", ["HETERO:alpha,beta", "onnxruntime", "openvino"])
def test_arrays_laid_out_badly(alpha, beta, where):
    if not where.startswith("HETERO"):
        pytest.importorskip(where)
    m = pt.compile(two_inputs(), where)
    block = np.zeros(1 + 4 * 6, np.uint8)
    misaligned = block[1:].view("<f4").reshape(3, 2)
    misaligned[...] = A
    read_only = A.copy()
    read_only.flags.writeable = False
    strided = np.ones((6, 4), np.float32)[::2, ::2]
    flipped, column = A[::-1], np.asfortranarray(A)
    for odd in (misaligned, read_only, strided, flipped, column, np.broadcast_to(np.float32(1), (3, 2))):
        for item in (m(odd, B), m.start(odd, B).result()):
            np.testing.assert_allclose(item["sum"], A + B)
            np.testing.assert_allclose(item["exp"], np.exp(A), rtol=1e-5)


def test_empty_arrays(model):
    assert model(A[:0], B[:0])["sum"].shape == (0, 2)


# -- whose memory -----------------------------------------------------------------------------------------


def test_no_later_call_overwrites_what_was_returned(alpha, beta):
    m = pt.compile(alternating(), "HETERO:alpha,beta")
    inputs = [X * i for i in range(5)]
    listed = [m(x)[0] for x in inputs]
    for x, y in zip(inputs, listed, strict=True):
        np.testing.assert_array_equal(y, interpret(alternating(), [x])[0])


class Views(Ran):
    """Returns views of what it was given wherever it can: the worst that a device may do."""

    def run(self, inputs, out=None):
        outputs = super().run(inputs, out)
        return [next((x[...] for x in inputs if x.shape == y.shape and np.array_equal(x, y)), y) for y in outputs]


class WritesOut(Ran):
    """Writes to the buffers that it is offered."""

    def run(self, inputs, out=None):
        outputs = super().run(inputs, out)
        if out is None:
            return outputs
        for target, value in zip(out, outputs, strict=True):
            if target is not None:
                target[...] = value
        return [value if target is None else target for target, value in zip(out, outputs, strict=True)]


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_buffers_between_subgraphs_are_never_shared_by_living_values(seed, parallel):
    """Random graphs on devices that write to the buffers, or return views of them."""
    random = np.random.default_rng(seed)
    values = [pt.variable("x", "float32", (4,))]
    for i in range(14):
        op = random.choice(["Identity", "Relu", "Neg", "Add"])
        reads = random.choice(len(values), 2 if op == "Add" else 1)
        item = pt.op(str(op), *[values[r] for r in reads], name=f"n{i}")
        item.affinity = str(random.choice(["writes", "views"]))
        values.append(item)
    g = pt.Graph([values[i] for i in random.choice(len(values), 4)] + values[-1:], [values[0]])
    with device("writes", subgraph_type=WritesOut), device("views", subgraph_type=Views):
        m = pt.compile(g, "HETERO:writes,views", {"PARALLEL": parallel})
        kept = [(x, m(x)) for x in (X, X * 2, X * 3)]
        everything = [array for x, item in kept for array in (x, *item)]
        assert not any(np.shares_memory(a, b) for i, a in enumerate(everything) for b in everything[:i])
        for x, item in kept:
            for mine, wanted in zip(item, interpret(g, [x]), strict=True):
                np.testing.assert_array_equal(mine, wanted)


def test_buffers_are_reused(alpha, beta):
    x = pt.variable("x", "float32", (1024,))
    y = x
    for i in range(12):
        y = pt.op("Exp" if i % 2 else "Softmax", y, name=f"n{i}")
    plan = pt.compile(pt.Graph([y]), "HETERO:alpha,beta")._executor.plan
    assert len(plan.buffers) == 11 and plan.block_size == 2 * 4096


def test_out(beta, alpha):
    g = two_inputs()
    m = pt.compile(g, "HETERO:alpha,beta", shapes={"a": (3, 2), "b": (3, 2)})
    total, exp = np.empty((3, 2), np.float32), np.empty((3, 2), np.float32)
    outputs = m(A, B, out=[total, exp])
    assert outputs[0] is total and outputs[1] is exp
    np.testing.assert_array_equal(total, A + B)
    outputs = m(A, B, out={"exp": exp})
    assert outputs["exp"] is exp and outputs["sum"] is not total
    strided = np.zeros((6, 4), np.float32)[::2, ::2]
    np.testing.assert_array_equal(m(A, B, out=[strided, None])[0], A + B)
    x = A.copy()
    m(x, B, out=[x, None])
    np.testing.assert_array_equal(x, A + B)


@pytest.mark.parametrize("where", ["beta", "HETERO:alpha,beta"])
def test_out_over_an_input_that_is_an_output_too(alpha, beta, where):
    x = pt.variable("x", "float32", (4,))
    m = pt.compile(pt.Graph([pt.op("Exp", x, name="e"), x, pt.op("Neg", x, name="n")]), where)
    memory = np.empty(5, np.float32)
    for source, target in ((memory[:4], memory[:4]), (memory[1:], memory[:4]), (memory[:4], memory[1:])):
        source[...] = X
        exp, given, negated = m(source, out=[target, None, None])
        np.testing.assert_array_equal(given, X)
        np.testing.assert_array_equal(negated, -X)
        assert exp is target and np.array_equal(exp, np.exp(X))


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (5, "out: int is not an array to write to\n  Give an array, a list of them, or a dictionary by name"),
        ([np.empty((3, 2), np.float32)], "out: 1 arrays are given for 2 outputs"),
        ({"summ": B}, "out: there is no output 'summ'\n  Did you mean 'sum'"),
        ([np.empty((3, 3), np.float32), None], "out for 'sum': the output is float32[n, 2], and the array float32[3, 3]"),
        ([np.empty((3, 2)), None], "out for 'sum': the output is float32[n, 2], and the array float64[3, 2]"),
        ([np.empty((4, 2), np.float32), None], "out for output 0: the output is float32[3, 2], and the array float32[4, 2]"),
        ([[1], None], "out for 'sum': it is not a numpy array that may be written to"),
        ([B[...], B[...]], "out for 'exp': it shares memory with the array for another output"),
    ],
)
def test_out_errors(model, out, message):
    with pytest.raises(pt.InputError) as caught:
        model(A, A, out=out)
    assert message in str(caught.value)


def test_constants_returned_are_copies(beta):
    k = np.arange(3.0)
    m = pt.compile(pt.Graph([pt.op("Identity", pt.constant(k, name="k"), name="y")]), "beta")
    m()[0][...] = 7
    np.testing.assert_array_equal(m()[0], [0, 1, 2])


# -- errors, asynchronous calls, threads ------------------------------------------------------------------


def test_an_error_while_running_says_where():
    def run(self, inputs, out=None):
        raise ValueError("out of tiles")

    with device("gamma", subgraph_type=type("Fails", (Ran,), {"run": run})):
        m = pt.compile(alternating(), "gamma")
        with pytest.raises(pt.RunError, match="subgraph 'gamma_0' on 'gamma': ValueError: out of tiles"):
            m(X)
        with pytest.raises(pt.RunError, match="out of tiles"):
            m.start(X).result()


def test_a_device_that_returns_too_little():
    short = type("Short", (Ran,), {"run": lambda self, inputs, out=None: []})
    message = "subgraph 'gamma_0' on 'gamma': it returned 0 values for 1 outputs"
    with device("gamma", subgraph_type=short), pytest.raises(pt.RunError, match=message):
        pt.compile(alternating(), "gamma")(X)


def test_start_checks_inputs_at_once_and_waits_while_the_queue_is_full():
    gate, started = threading.Event(), threading.Event()

    def run(self, inputs, out=None):
        started.set()
        assert gate.wait(300)
        return interpret(self.graph, inputs)

    with device("slow", subgraph_type=type("Slow", (Ran,), {"run": run, "concurrent": True})):
        m = pt.compile(alternating(), "slow", {"NUM_REQUESTS": 1, "QUEUE_SIZE": 1})
        with pytest.raises(pt.InputError):
            m.start(X[:2])
        futures = [m.start(X), m.start(X * 2)]
        third = threading.Thread(target=lambda: futures.append(m.start(X * 3)))
        third.start()
        assert started.wait(300)
        third.join(0.05)
        assert third.is_alive() and len(futures) == 2 and not futures[0].done()
        gate.set()
        third.join(300)
        listed = [future.result(300)[0] for future in futures]
        for i, y in enumerate(listed, 1):
            np.testing.assert_array_equal(y, interpret(alternating(), [X * i])[0])
        m.close()


def test_a_closed_model(beta):
    with pt.compile(alternating(), "beta") as m:
        assert m.start(X).result() is not None
    for call in (m, m.start, m.profile):
        with pytest.raises(pt.RunError, match="model 'chain': the model is closed\n  Compile it again"):
            call(X)


@pytest.mark.parametrize("config", [{}, {"alpha": {"PERF_COUNT": True}}, {"HETERO": {"PARALLEL": True}}])
def test_sixteen_threads_while_others_profile(alpha, beta, config):
    m = pt.compile(alternating(), "HETERO:alpha,beta", config)
    wanted = {i: interpret(alternating(), [X * i])[0] for i in range(16)}
    failures = []

    def calls(i):
        try:
            for _ in range(40):
                np.testing.assert_array_equal(m(X * i)[0], wanted[i])
                np.testing.assert_array_equal(m.start(X * i).result()[0], wanted[i])
        except Exception as error:  # noqa: BLE001  asserted about below
            failures.append(error)

    def profiles():
        try:
            for _ in range(20):
                assert {row.status for row in m.profile(X).rows} == {"EXECUTED"}
        except Exception as error:  # noqa: BLE001  asserted about below
            failures.append(error)

    threads = [threading.Thread(target=calls, args=(i,)) for i in range(16)]
    threads += [threading.Thread(target=profiles) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_independent_subgraphs_side_by_side():
    together = threading.Barrier(2, timeout=300)

    def run(self, inputs, out=None):
        together.wait()
        return interpret(self.graph, inputs)

    x = pt.variable("x", "float32", (4,))
    left, right = pt.op("Exp", x, name="left"), pt.op("Softmax", x, name="right")
    g = pt.Graph([pt.op("Add", left, right, name="sum")])
    met = {"subgraph_type": type("Met", (Ran,), {"run": run})}
    with device("one", "Exp", **met), device("two", "Softmax", **met), device("three"):
        m = pt.compile(g, "HETERO:one,two,three", {"HETERO": {"PARALLEL": True}})
        np.testing.assert_allclose(m(X)[0], interpret(g, [X])[0])


def test_closing_lets_a_call_that_runs_side_by_side_finish():
    entered, closed = threading.Event(), threading.Event()

    def run(self, inputs, out=None):
        entered.set()
        assert closed.wait(300)
        return interpret(self.graph, inputs)

    x = pt.variable("x", "float32", (4,))
    first = pt.op("Relu", x, name="first")
    left, right = pt.op("Exp", first, name="left"), pt.op("Softmax", first, name="right")
    g = pt.Graph([pt.op("Add", left, right, name="sum")])
    with device("zero", "Relu", subgraph_type=type("Waits", (Ran,), {"run": run})), device("one", "Exp"), device("two"):
        m = pt.compile(g, "HETERO:zero,one,two", {"HETERO": {"PARALLEL": True}})
        futures = []
        caller = threading.Thread(target=lambda: futures.append(m(X)))
        caller.start()
        assert entered.wait(300)
        m.close()
        closed.set()
        caller.join(300)
    np.testing.assert_allclose(futures[0][0], interpret(g, [X])[0])


def test_side_by_side_is_kept_where_it_is_measured_to_be_faster():
    from partita.accelerators.runtime.executor import ConcurrencyTrial

    def decided(in_turn: float, together: float) -> bool | None:
        trial = ConcurrencyTrial(None)
        for _ in range(10):
            way = trial.next()
            trial.note(way, together if way else in_turn)
        return trial.decided

    assert decided(0.010, 0.006) is True
    assert decided(0.010, 0.0095) is False
    assert decided(0.0001, 0.00001) is False, "too short to be worth it"


@pytest.mark.parametrize(("cores", "requests"), [(None, 1), (1, 1), (8, 2)])
def test_one_request_more_than_devices_where_there_are_cores(model, monkeypatch, cores: int | None, requests: int) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert model.properties.optimal_requests == requests


def test_properties_and_forms(model):
    p = model.properties
    assert (p.name, p.devices, p.subgraphs) == ("net", ("beta",), 2 - 1)
    assert [name for name, _ in p.inputs] == ["a", "b"] and [str(kind) for _, kind in p.outputs] == ["float32[n, 2]"] * 2
    assert repr(model) == "<CompiledModel 'net' (a, b -> sum, exp): 1 subgraph on beta>"
    assert [node.op for node in model.graph.nodes if node.is_op] == ["Call"]


def test_a_device_writes_to_the_callers_array_itself_where_it_may():
    """Not over an input, and to no memory that is not aligned or not in order."""
    given = []

    class Seen(Ran):
        def run(self, inputs, out=None):
            given.append(None if out is None else out[0])
            return super().run(inputs)

    memory = np.zeros(64, np.float32)
    aligned = memory[-memory.ctypes.data // 4 % 16 :]
    with device("seen", subgraph_type=Seen):
        model = pt.compile(pt.Graph([pt.op("Exp", pt.variable("x", "float32", (4,)), name="e")]), "seen")
        x = aligned[:4]
        x[...] = X
        for target, is_written in ((aligned[16:20], True), (x, False), (aligned[2:6], False), (aligned[16:24:2], False)):
            x[...] = X
            (exp,) = model(x, out=[target])
            assert exp is target and np.array_equal(exp, np.exp(X))
            assert (given[-1] is target) is is_written
