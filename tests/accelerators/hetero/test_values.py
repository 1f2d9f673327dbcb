"""Values that are not plain tensors, and orders that no value forces, across devices."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import partita as pt

X = np.arange(6, dtype=np.float32)


def test_sequences_between_devices_and_as_outputs(beta, alpha):
    x = pt.variable("x", "float32", (6,))
    split = pt.op("SplitToSequence", x, name="split", axis=0)
    at = pt.op("SequenceAt", split, pt.constant(np.int64(2)), name="at")
    g = pt.Graph([at, split, split], output_names=["at", "seq", "again"])
    m = pt.compile(g, "HETERO:beta,reference", pin={"at": "reference"})
    outputs = m(X)
    assert outputs["at"].item() == 2 and [v.item() for v in outputs["seq"]] == list(range(6))
    outputs["seq"][0][...] = 9
    assert outputs["again"][0].item() == 0, "the second list has arrays of its own"


def test_a_sequence_given_and_returned_is_copied(beta):
    s = pt.variable("s", type=pt.SequenceType(pt.TensorType("float32", (2,))))
    m = pt.compile(pt.Graph([s, pt.op("SequenceLength", s, name="n")]), "beta")
    given = [np.ones(2, np.float32)]
    outputs = m(given)
    assert outputs[0] is not given and outputs[0][0] is not given[0] and outputs[1] == 1


def test_strings(beta):
    t = pt.variable("t", "string", (2,))
    g = pt.Graph([pt.op("Identity", pt.op("StringNormalizer", t, name="up", case_change_action="UPPER"), name="same")])
    m = pt.compile(g, "HETERO:reference,beta", pin={"same": "beta"})
    assert list(m(np.array(["a", "b"]))[0]) == list(m(["a", "b"])[0]) == ["A", "B"]


def test_narrow_floats(beta):
    x = pt.variable("x", "bfloat16", (4,))
    g = pt.Graph([pt.op("Relu", pt.op("Abs", x, name="abs"), name="relu")])
    m = pt.compile(g, "HETERO:reference,beta", pin={"abs": "beta"})
    assert m(-np.ones(4, ml_dtypes.bfloat16))[0].dtype == ml_dtypes.bfloat16
    assert len(m._executor.plan.buffers) == 1


def test_control_dependencies_are_an_order(beta):
    x = pt.variable("x", "float32", (6,))
    first = pt.op("Relu", x, name="first")
    then = pt.op("Exp", x, name="then").evolve(after=(first,))
    m = pt.compile(pt.Graph([then, first]), "HETERO:beta,reference", pin={"first": "reference"})
    assert [unit.ops for unit in m.units] == [("first",), ("then",)]
    np.testing.assert_allclose(m(X)[0], np.exp(X), rtol=1e-6)


def test_unknown_rank(beta, alpha):
    u = pt.variable("u", "float32")
    m = pt.compile(pt.Graph([pt.op("Softmax", pt.op("Relu", u, name="r"), name="s")]), "HETERO:alpha,beta")
    assert m(X)[0].shape == (6,) and m(X.reshape(2, 3))[0].shape == (2, 3)


def test_values_that_no_memory_holds_are_one_error(beta):
    """The values between two subgraphs are as large as their types say."""
    x = pt.variable("x", "float32", (1,))
    wide = pt.op("Expand", x, pt.constant(np.array([10**6, 10**6, 10**6])), name="wide")
    m = pt.compile(pt.Graph([pt.op("Abs", wide, name="abs")]), "HETERO:reference,beta", pin={"abs": "beta"})
    with pytest.raises(pt.RunError, match="there is no memory for the values between its subgraphs, which take 4,000,000,"):
        m(np.ones(1, np.float32))
