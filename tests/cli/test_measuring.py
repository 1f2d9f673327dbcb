"""pt.bench: times of models beside each other, and what they say about it."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.cli import bench
from partita.compare import Difference
from partita.measuring.bench_report import BenchReport, Row, report
from partita.measuring.rounds import Contender, Effort, measure, named
from tests.accelerators.hetero.small_devices import device
from tests.cli.conftest import small_graph

X = np.ones((1, 3, 8, 8), np.float32)


def test_a_report_of_two_devices() -> None:
    result = pt.bench(small_graph(), "reference", vs="onnxruntime", seconds=0.05, threads=1)
    assert [row.devices for row in result.rows] == ["reference", "onnxruntime"]
    row = result["onnxruntime"]
    assert row.min_ms <= row.median_ms <= row.p90_ms <= row.p99_ms
    assert row.difference < 1e-5 and row.outputs[0].output == "y"
    assert (result["reference"].ratio, result["reference"].outputs) == (1.0, ())
    assert result.to_dict()["contenders"][1]["outputs"][0]["ok"] is True
    assert "reference" in str(result) and "99 %" in str(result)
    assert repr(result).startswith("<BenchReport of 'small': reference ")


def test_the_printed_table() -> None:
    """Names at the left, numbers at the right, and nothing where a function has no subgraphs and is ready at once."""
    rows = (
        Row("cpu", 1, 2.25, 1.5, 2.0, 3.25, 1.0, 7, 1234.56, 1.0, 0.0, ()),
        Row("mine", None, None, 0.75, 1.0, 1.125, 0.5, 14, 2469.12, 0.5, 0.125, (Difference("y", 0.004, (1,), False),)),
    )
    title, _, head, _, *lines, _, caption = str(BenchReport("net", 4, 1, rows, {})).splitlines()
    assert (title.strip(), caption.strip()) == ("net: one call of 4 items", "throughput in items per second, 1 call at once")
    assert [cell.strip() for cell in head.strip("┃").split("┃")] == [
        "devices", "subgraphs", "median", "90 %", "99 %", "fastest",
        "runs", "throughput", "times the first", "difference", "ready in",
    ]
    assert lines == [
        "│ cpu     │         1 │ 1.500 ms │ 2.000 ms │ 3.250 ms │ 1.000 ms │    7 │"
        "    1,234.6 │      1.00 ±0.00 │      0e+00 │    2.2 s │",
        "│ mine    │           │ 0.750 ms │ 1.000 ms │ 1.125 ms │ 0.500 ms │   14 │"
        "    2,469.1 │      0.50 ±0.12 │      4e-03 │          │",
    ]


def test_rivals_have_the_names_of_their_devices_or_functions() -> None:
    plain = pt.compile(small_graph(), "reference")
    with device("odd", supports=lambda self, node, graph: node.op == "Relu"):
        several = pt.compile(small_graph(), "HETERO:odd,reference")
    assert list(named([plain, "cpu", several, max])) == ["reference", "cpu", "HETERO:reference,odd", "max"]
    assert list(named({"one": plain})) == ["one"] and list(named(max)) == ["max"] and list(named(plain)) == ["reference"]


def test_so_many_runs_of_each() -> None:
    calls: list[int] = []
    model = pt.compile(small_graph(), "reference")

    def counted(inputs: Mapping[str, Any]) -> Any:
        calls.append(1)
        return model(inputs)

    result = pt.bench(model, vs={"counted": counted}, iterations=7, warmup=4)
    assert {row.devices: row.runs for row in result.rows} == {"reference": 7, "counted": 7}
    assert len(calls) >= 1 + 4 + 7, "compared once, warmed up, measured"
    assert result["counted"].subgraphs is None and result["reference"].compile_seconds is None


def test_percentiles_ratios_and_throughput_are_those_of_the_runs() -> None:
    model = pt.compile(small_graph(4), "reference")
    inputs = {"x": np.ones((4, 3, 8, 8), np.float32)}
    first, other = Contender("a", model, model), Contender("b", model, model)
    first.rounds = [[1.0] * 50, [1.0] * 50]
    other.rounds = [[float(i) for i in range(1, 51)], [float(i) for i in range(51, 102)]]
    row = report([first, other], inputs, Effort(), {}, False).rows[1]
    assert (row.median_ms, row.p90_ms, row.p99_ms, row.min_ms, row.runs) == (51.0, 91.0, 100.0, 1.0, 101)
    assert row.ratio == pytest.approx((25.5 + 76) / 2)
    assert row.throughput == pytest.approx(4 * 1e3 * 101 / sum(range(1, 102)))
    other.rates = [10.0, 30.0, 11.0]
    assert report([first, other], inputs, Effort(streams=2), {}, False).rows[1].throughput == 44.0


def test_streams_call_at_once() -> None:
    together = threading.Barrier(3, timeout=300)
    model = pt.compile(small_graph(), "reference")
    main = threading.get_ident()

    def needs_three(inputs: Mapping[str, Any]) -> Any:
        if threading.get_ident() != main:
            together.wait()
        return model(inputs)

    contender = Contender("three", needs_three, model)

    def stopping(inputs: Mapping[str, Any]) -> Any:
        """Each stream calls once, so that none waits for others that have ended."""
        outputs = needs_three(inputs)
        time.sleep(0.3 if threading.get_ident() != main else 0)
        return outputs

    contender.call = stopping
    measure([contender], {"x": X}, Effort(iterations=1, streams=3))
    assert len(contender.rates) == 1 and 0 < contender.rates[0] <= 3 / 0.3


def test_a_rival_that_is_refused_is_said() -> None:
    result = pt.bench(small_graph(), "reference", vs=["nonesuch"], iterations=1)
    assert list(result.refused) == ["nonesuch"] and "there is no device 'nonesuch'" in result.refused["nonesuch"]


def test_a_batch() -> None:
    assert pt.bench(small_graph("N"), "reference", batch=5, iterations=1).batch == 5
    assert pt.bench(small_graph(1), "reference", batch=2, iterations=1).batch == 2
    x = pt.variable("x", "float32", (1, 4))
    fixed = pt.Graph([pt.op("Add", x, pt.constant(np.ones((2, 4), np.float32)))])
    with pytest.raises(pt.PartitaError, match="the model does not take a batch of 3"):
        pt.bench(fixed, "reference", batch=3, iterations=1)
    with pytest.raises(pt.PartitaError, match="a compiled model runs with the sizes of its inputs\n  Give the graph"):
        pt.bench(pt.compile(small_graph(), "reference"), batch=3)


def test_the_profile_of_the_first() -> None:
    result = pt.bench(small_graph(), "reference", iterations=1, profile=True)
    assert result.profile is not None and result.profile.rows[0].node == "conv1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, "bench, option iterations: it is a whole number from 1 on, not 0"),
        ({"streams": 1.5}, "bench, option streams: it is a whole number from 1 on, not 1.5"),
        ({"warmup": -1}, "bench, option warmup: it is a whole number from 0 on, not -1"),
        ({"seconds": 0}, "bench, option seconds: it is a number above zero, not 0"),
        ({"batch": 0}, "bench, option batch: it is a whole number from 1 on, not 0"),
        ({"precision": "f7"}, "bench, option precision: it is one of f32, f16, bf16, fast, tf32, not 'f7'"),
        ({"precision": "bf16"}, "bench, option precision: none of the devices offers a PRECISION\n  `partita devices"),
        ({"vs": {"none": 3}}, "bench, rival 'none': it is devices, a compiled model or a function, not 3"),
        ({"inputs": [X, X], "iterations": 1}, "bench, option inputs: there are 1 input, and 2 were given"),
    ],
)
def test_options_that_say_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(pt.PartitaError) as caught:
        pt.bench(small_graph(), "reference", **options)
    assert message in str(caught.value)


def raises(inputs: Mapping[str, Any]) -> Any:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("rival", "message"),
    [
        (raises, "bench, rival 'mine': it raises ValueError: boom"),
        (lambda inputs: [], "bench, rival 'mine': it gives 0 outputs, and the model has 1"),
    ],
)
def test_functions_that_do_not_do(rival: Any, message: str) -> None:
    with pytest.raises(pt.RunError) as caught:
        pt.bench(small_graph(), "reference", vs={"mine": rival}, iterations=1)
    assert message in str(caught.value)


def test_a_function_may_give_a_single_output_without_a_list() -> None:
    model = pt.compile(small_graph(), "reference")
    result = pt.bench(small_graph(), "reference", vs={"mine": lambda inputs: model(inputs)[0]}, iterations=1)
    assert result["mine"].difference == 0


def test_what_it_cannot_measure() -> None:
    with pytest.raises(pt.PartitaError, match="bench: it measures a graph or a compiled model, not a list"):
        pt.bench([1])  # type: ignore[arg-type]


def test_rows_are_plain_data() -> None:
    row = Row("cpu", 1, None, 1.0, 1.0, 1.0, 1.0, 3, 10.0, 1.0, 0.0, ())
    assert row.to_dict()["difference"] == 0.0 and row.to_dict()["outputs"] == []


def test_the_batch_is_the_first_size_of_the_first_array() -> None:
    scale, x = pt.variable("scale", "float32", ()), pt.variable("x", "float32", (3, 2))
    graph = pt.Graph([pt.op("Mul", x, scale, name="y")], [scale, x])
    inputs = {"scale": np.array(2, np.float32), "x": np.ones((3, 2), np.float32)}
    assert pt.bench(graph, "reference", inputs=inputs, iterations=1, warmup=0).batch == 3
    alone = pt.Graph([pt.op("Neg", pt.variable("s", "float32", ()), name="y")])
    assert pt.bench(alone, "reference", iterations=1, warmup=0).batch == 1


@pytest.mark.parametrize(
    ("options", "own", "others"),
    [
        ("", {}, {}),
        ("--threads 3", {"NUM_THREADS": 3}, {"NUM_THREADS": 3}),
        ("--precision f16", {"PRECISION": "f16"}, {"PRECISION": "f16"}),
        ("--threads 3 --precision f16", {"NUM_THREADS": 3, "PRECISION": "f16"}, {"NUM_THREADS": 3, "PRECISION": "f16"}),
        ("--config CACHE_DIR=kept --threads 1", {"CACHE_DIR": "kept", "NUM_THREADS": 1}, {"NUM_THREADS": 1}),
    ],
)
def test_settings_of_contenders(options: str, own: dict[str, Any], others: dict[str, Any]) -> None:
    parser = argparse.ArgumentParser()
    bench.configure(parser)
    arguments = parser.parse_args(["small.onnx", "--devices", "cpu", *options.split()])
    assert bench._config("cpu", arguments) == ({"cpu": own} if own else {})
    assert bench._config("cpu", arguments, own=False) == ({"cpu": others} if others else {})
