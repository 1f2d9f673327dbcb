"""MXNet's parameter files: every form that releases have written, and what is refused."""

from __future__ import annotations

import struct
from io import BytesIO

import ml_dtypes
import numpy as np
import pytest

from partita.graph import ReadError
from partita.graph.readers.mxnet import read_params
from partita.graph.readers.mxnet.params import V1, V2, V3
from partita.graph.types import BY_MXNET_NUMBER, numpy_dtype
from tests.mxnet.data import FOLDER

FLAGS = {name: number for number, name in BY_MXNET_NUMBER.items()}


def array_bytes(array, form=V2, storage=0):
    """One array as MXNet writes it."""
    flag = FLAGS[array.dtype.name]
    rank, dims = array.ndim, array.shape
    if form == "legacy":
        head = struct.pack(f"<I{rank}I", rank, *dims)
    elif form == V1:
        head = struct.pack(f"<Ii{rank}q", V1, rank, *dims)
    else:
        head = struct.pack(f"<Iii{rank}q", form, storage, rank, *dims)
    return head + struct.pack("<iii", 1, 0, flag) + array.tobytes()


def file_bytes(named, form=V2, **changes):
    """A whole file."""
    arrays = [array_bytes(a, form) for a in named.values()]
    names = [struct.pack("<Q", len(n.encode())) + n.encode() for n in named]
    count, listed = changes.get("count", len(arrays)), changes.get("names", len(names))
    body = struct.pack("<QQQ", changes.get("magic", 0x112), 0, count) + b"".join(arrays)
    return body + struct.pack("<Q", listed) + b"".join(names) + changes.get("tail", b"")


W = np.arange(6, dtype=np.float32).reshape(2, 3)
M = np.array([1.5, 2.5], np.float32)


@pytest.mark.parametrize("form", ["legacy", V1, V2, V3])
def test_every_form(form):
    result = read_params(file_bytes({"arg:w": W, "aux:m": M}, form))
    assert list(result) == ["w", "m"]
    np.testing.assert_array_equal(result["w"], W)
    np.testing.assert_array_equal(result["m"], M)


@pytest.mark.parametrize("dtype", BY_MXNET_NUMBER.values())
def test_every_dtype(dtype):
    array = np.array([0, 1, 3]).astype(numpy_dtype(dtype))
    (result,) = read_params(file_bytes({"w": array})).values()
    assert result.dtype == array.dtype
    np.testing.assert_array_equal(result, array)


def test_scalars_and_empty_arrays():
    result = read_params(
        file_bytes({"s": np.float32(2.5) * np.ones(()), "e": np.zeros((0, 4), np.float32)}, V3)
    )
    assert result["s"].shape == () and result["s"] == 2.5
    assert result["e"].shape == (0, 4)


def test_the_arrays_own_their_memory(tmp_path):
    path = tmp_path / "net-0000.params"
    path.write_bytes(file_bytes({"x": W}))
    result = read_params(path)["x"]
    path.write_bytes(b"")
    assert result.flags.aligned and result.flags.owndata
    np.testing.assert_array_equal(result, W)


def test_what_mxnet_wrote():
    result = read_params(FOLDER / "many_ops-0000.params")
    assert {name: value.shape for name, value in result.items()} == {
        "c1_weight": (8, 3, 3, 3), "c1_bias": (8,), "b1_gamma": (8,), "b1_beta": (8,), "dc1_weight": (8, 4, 2, 2),
        "ln_gamma": (12,), "ln_beta": (12,), "fc1_weight": (5, 12), "fc1_bias": (5,), "b1_moving_mean": (8,),
        "b1_moving_var": (8,),
    }


def npz(**arrays):
    stream = BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_npz(tmp_path):
    path = tmp_path / "net.npz"
    path.write_bytes(npz(**{"arg:w": np.asfortranarray(W), "m": M.astype(">f4")}))
    result = read_params(path)
    np.testing.assert_array_equal(result["w"], W)
    np.testing.assert_array_equal(result["m"], M)
    assert result["m"].dtype.isnative


def test_npz_bfloat16():
    (result,) = read_params(npz(w=M.astype(ml_dtypes.bfloat16))).values()
    assert result.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(result, M.astype(ml_dtypes.bfloat16))


def test_a_mapping():
    result = read_params({"arg:w": W, "m": [1, 2]})
    assert result["w"] is W
    np.testing.assert_array_equal(result["m"], [1, 2])


GOOD = file_bytes({"arg:w": W, "aux:m": M})


@pytest.mark.parametrize(
    "content, message",
    [
        (b"some text that is not a parameter file", "this is not an MXNet parameter file"),
        (b"", "this is not an MXNet parameter file"),
        (file_bytes({"w": W}, magic=0x113), "this is not an MXNet parameter file"),
        (GOOD[:100], "the file ends inside"),
        (GOOD[:-3], "the file ends inside name 1, which needs 5 bytes"),
        (GOOD + b"x", "1 bytes follow the last name"),
        (file_bytes({"w": W}, count=2**62), f"the file declares {2**62} arrays, more than its size can hold"),
        (file_bytes({"w": W}, names=2**40), f"the file declares {2**40} names, more than its size can hold"),
        (file_bytes({"w": W}, names=0, tail=b""), "the file has no names for its 1 arrays"),
        (file_bytes({"arg:w": W, "aux:w": W}), "there are two parameters 'w'"),
        (
            file_bytes({"w": W}).replace(struct.pack("<Ii", V2, 0), struct.pack("<Ii", V2, 1)),
            "array 0 is stored as row_sparse",
        ),
        (
            file_bytes({"w": W}).replace(struct.pack("<Ii", V2, 0), struct.pack("<Ii", V2, 2)),
            "array 0 is stored as csr",
        ),
        (
            file_bytes({"w": W}).replace(struct.pack("<iii", 1, 0, 0), struct.pack("<iii", 1, 0, 99)),
            "unknown element type 99",
        ),
        (
            file_bytes({"w": W}).replace(struct.pack("<iqq", 2, 2, 3), struct.pack("<iqq", 2, 2**31, 2**31)),
            "the shape (2147483648, 2147483648)",
        ),
        (
            file_bytes({"w": W}).replace(struct.pack("<iqq", 2, 2, 3), struct.pack("<iqq", 2, 2**20, 3)),
            "the file ends inside array 0",
        ),
        (
            file_bytes({"w": W}).replace(struct.pack("<iqq", 2, 2, 3), struct.pack("<iqq", 2, -1, 3)),
            "array 0 has the shape (-1, 3)",
        ),
        (
            file_bytes({"w": W}).replace(struct.pack("<iqq", 2, 2, 3), struct.pack("<iqq", 2**30, 2, 3)),
            "array 0 declares 1073741824 dimensions",
        ),
        (
            file_bytes({"w": np.ones((), np.float32)}),
            "array 0 has no shape: it was saved before it was initialized",
        ),
        (file_bytes({"w": W}).replace(b"w", b"\xff"), "name 0 is not text"),
        (npz(w=np.array(["text"])), "the array holds <U4, not numbers"),
        (npz(w=np.array([{}], dtype=object)), "the array holds object, not numbers"),
        (npz(w=W)[:-30], "the archive is damaged"),
        (npz(w=W).replace(b"(2, 3)", b"(9, 9)"), "the archive is damaged"),
    ],
)
def test_damaged_files(content, message):
    with pytest.raises(ReadError) as refused:
        read_params(content)
    assert message in str(refused.value)
    assert str(refused.value).startswith("params")


@pytest.mark.parametrize(
    "source, message",
    [
        ("missing-0000.params", "the parameter file cannot be opened"),
        (".", "the parameter file cannot be opened"),
        (7, "parameters cannot be read from a int"),
        ({"w": "text"}, "the value holds <U4, not numbers"),
        ({"w": [[1], [2, 3]]}, "the value is not an array of numbers"),
        ({3: W}, "a parameter's name is text, not 3"),
    ],
)
def test_what_is_no_parameters(source, message):
    with pytest.raises(ReadError) as refused:
        read_params(source)
    assert message in str(refused.value)
