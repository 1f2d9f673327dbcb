"""External data: mapped, and only from inside the model's folder."""

from __future__ import annotations

import os
import re

import numpy as np
import onnx.checker
import pytest
from onnx import TensorProto

import partita.graph as pt
from partita.graph.errors import ReadError, WriteError
from partita.graph.readers import load
from partita.graph.readers.onnx import load_onnx
from partita.graph.writers.onnx import save
from tests.onnx.models import model


def _write(folder, location="data.bin", offset=None, length=None):
    proto = model("net (float[3] x) => (float[3] y) { y = Add(x, w) }")
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[3], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path):
    (tmp_path / "data.bin").write_bytes(b"skip" + np.float32([1, 2, 3]).tobytes())
    array = load(_write(tmp_path, offset=4, length=12))["w"].value
    assert array.tolist() == [1, 2, 3] and not array.flags.writeable


@pytest.mark.parametrize("location, message", [
    ({"location": "../secret.bin"}, "outside the model's folder"),
    ({"location": "link.bin"}, "outside the model's folder"),
    ({"location": "linked/secret.bin"}, "outside the model's folder"),
    ({"location": "missing.bin"}, "there is no file 'missing.bin'"),
    ({"location": ""}, "not a relative path"),
    ({"location": "."}, "not a regular file"),
    ({"offset": 100}, "should end at byte 112 of 'data.bin', which has 12"),
    ({"offset": -4}, "the offset of external data is '-4'"),
    ({"offset": 10**30}, "the offset of external data"),
    ({"length": 8}, "has 8 bytes, but the tensor takes 12"),
])
def test_data_that_is_not_the_models_own_is_refused(tmp_path, location, message):
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(100))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data.bin").write_bytes(bytes(12))
    os.symlink(secret, folder / "link.bin")
    os.symlink(tmp_path, folder / "linked")
    with pytest.raises(ReadError, match=message):
        load(_write(folder, **location))


def test_absolute_paths_are_refused(tmp_path):
    (tmp_path / "data.bin").write_bytes(bytes(12))
    with pytest.raises(ReadError, match="not a relative path"):
        load(_write(tmp_path, location=str(tmp_path / "data.bin")))


def test_bytes_have_no_folder_unless_one_is_given(tmp_path):
    (tmp_path / "data.bin").write_bytes(bytes(12))
    data = _write(tmp_path).read_bytes()
    with pytest.raises(ReadError, match=r"(?s)whose folder is unknown.*base_dir="):
        load(data)
    assert load(data, base_dir=tmp_path)["w"].value.tolist() == [0, 0, 0]


def test_data_in_memory(tmp_path):
    files = {"data.bin": b"skip" + np.float32([1, 2, 3]).tobytes() + b"rest"}
    proto = _write(tmp_path, offset=4, length=12).read_bytes()
    assert load_onnx(proto, base_dir=files)["w"].value.tolist() == [1, 2, 3]
    assert load_onnx(_write(tmp_path, offset=8).read_bytes(), base_dir=files)["w"].value[:2].tolist() == [2, 3]


@pytest.mark.parametrize("place, message", [
    ({"location": "missing.bin"}, "should end at byte 12 of 'missing.bin', which is missing or shorter"),
    ({"location": None}, "should end at byte 12 of '', which is missing or shorter"),
    ({"offset": 1}, "should end at byte 13 of 'data.bin', which is missing or shorter"),
    ({"offset": -4}, "the offset of external data is '-4'"),
    ({"offset": "4 "}, "the offset of external data is '4 '"),
    ({"offset": 10**19}, "the offset of external data is '10000000000000000000'"),
    ({"offset": 10**18}, "should end at byte 1000000000000000012 of 'data.bin', which is missing or shorter"),
    ({"length": 8}, "the external data of a tensor has 8 bytes, but the tensor takes 12"),
])
def test_memory_that_is_not_there_is_refused(tmp_path, place, message):
    proto = _write(tmp_path, **place).read_bytes()
    with pytest.raises(ReadError, match=re.escape(message)):
        load_onnx(proto, base_dir={"data.bin": bytes(12)})


def _graph(value):
    x = pt.variable("x", "float32", (400,))
    w = pt.constant(np.full(400, value, np.float32), "w")
    return pt.Graph([pt.op("Add", x, w, name="y")])


def test_large_constants_go_aside_and_an_older_file_goes_away(tmp_path):
    path = tmp_path / "net.onnx"
    for value in (1, 2):
        save(_graph(value), path, external=True)
        onnx.checker.check_model(str(path), full_check=True)
        assert load(path)["w"].value.tolist() == [value] * 400
        assert len(list(tmp_path.iterdir())) == 2
    again = load(path)
    save(again, path)
    assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
    assert again["w"].value[0] == 2, "what was mapped stays readable"


def test_a_save_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    save(_graph(1), path)
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    for external in (False, True):
        monkeypatch.setattr(os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save(_graph(2), path, external=external)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == ["net.onnx"]
    with pytest.raises(WriteError, match="it is a directory"):
        save(_graph(2), tmp_path)
