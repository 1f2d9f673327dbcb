"""ONNX's node tests on `cpu` a second time, each in a process of its own: from the cache, and from an export."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from onnx import ModelProto, load_model, load_tensor, numpy_helper, save_model, save_tensor

import partita as pt
from partita.accelerators.interface.registry import accelerator
from partita.graph.errors import PartitaError
from tests.accelerators.package.models import in_new_process

pytestmark = pytest.mark.skipif(importlib.util.find_spec("tvm") is None, reason="TVM is not installed")

How = Literal["cache", "export"]

SAMPLE = {
    "attention": "test_attention_4d_gqa", "cast": "test_cast_FLOAT_to_BFLOAT16", "gru": "test_gru_defaults",
    "qlinearconv": "test_qlinearconv", "resize": "test_resize_upsample_sizes_cubic", "shape": "test_shape_start_greater_than_end",
    "softmax": "test_softmax_axis_1", "topk": "test_top_k",
}
"""Cases of several kinds of kernels, by ONNX's file."""

PARTS = 12

PLAIN = tuple([f"partita.accelerators.{name}" for name in ("api", "tvm.cpu", "tvm.prepare.preparing", "tvm.query.support")])
"""Modules that nearly every case imports and that load nothing of TVM."""

CHECK = """
from pathlib import Path
from tests.accelerators.package.test_node_cases import problems
print(json.dumps(problems(Path(args[0]), args[1])))
"""


def keep(cases: Iterable[Any], folder: Path) -> dict[str, str]:
    """Compile the cases that `cpu` takes, and write their models, inputs, outputs and exports into the folder, which holds the
    cache too. What a case gives as small integer inputs (the k of TopK, say) are constants where `cpu` takes it so alone. Returns
    what is wrong, by name; the others have a folder of their own."""
    from tests.accelerators.tvm.node_cases import difference
    from tests.numerics.driver import from_proto

    wrong = dict[str, str]()
    for case in cases:
        inputs, wanted = ([from_proto(value) for value in values] for values in case.data_sets[0])
        if not all(isinstance(value, np.ndarray) for value in (*inputs, *wanted)):
            continue
        own = folder / case.name
        own.mkdir(parents=True)
        try:
            model = _compiled(case.model, inputs, own) or _compiled(*_with_constants(case.model, inputs), own)
            if model is None:
                own.rmdir()
                continue
            inputs = _arrays(own, "input")
            outputs = list(model(*inputs))
            model.export(own / "model.partita")
        except PartitaError as error:
            wrong[case.name] = str(error)
            continue
        problem = difference(outputs, wanted, case)
        if problem is not None:
            wrong[case.name] = problem
        _save(own, "output", outputs)
    return wrong


def _compiled(model: Any, inputs: Sequence[Any], own: Path) -> Any:
    """The model on `cpu`, kept with its inputs; None where `cpu` refuses an op of it."""
    graph = _graph(model, inputs)
    if not all(answer is True for answer in accelerator("cpu").query(graph).values()):
        return None
    save_model(model, own / "model.onnx")
    _save(own, "input", inputs)
    return pt.compile(graph, "cpu", _config(own.parent))


def _with_constants(model: Any, inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The model with its integer inputs of at most one dimension, the first input aside, as constants; and the other inputs."""
    changed, others = ModelProto.FromString(model.SerializeToString()), list[Any]()
    for i, (value, array) in enumerate(zip(model.graph.input, inputs, strict=False)):
        if i and array.dtype.kind in "iu" and array.ndim < 2:
            changed.graph.initializer.append(numpy_helper.from_array(array, value.name))
            changed.graph.input.remove(value)
        else:
            others.append(array)
    return changed, others


def read_again(folder: Path, how: How) -> dict[str, str]:
    """What is wrong with the cases in the folder, by name. A fresh process, which has loaded nothing of TVM, forks another for
    each of them."""
    problems: dict[str, str] = json.loads(in_new_process(CHECK, folder, how, seconds=3000).stdout)
    assert len(problems) == len(kept(folder))
    return {name: problem for name, problem in problems.items() if problem}


def kept(folder: Path) -> list[str]:
    """The names of the cases in the folder."""
    return sorted(path.parent.name for path in folder.glob("*/model.partita"))


def problems(folder: Path, how: How) -> dict[str, str]:
    """What is wrong with each of them, or ""."""
    for module in PLAIN:
        importlib.import_module(module)
    assert not {"tvm", "tvm_ffi"} & sys.modules.keys()
    return {name: in_fork(lambda name=name: _problem(folder / name, how)) for name in kept(folder)}


def _problem(own: Path, how: How) -> str:
    """What is wrong with one case; "" if nothing is."""
    inputs = _arrays(own, "input")
    if how == "export":
        model = pt.import_model(own / "model.partita")
    else:
        model = pt.compile(_graph(load_model(own / "model.onnx"), inputs), "cpu", _config(own.parent))
        if not all(row.story is None or row.story.from_cache for row in model.report.subgraphs):
            return "it was compiled again"
    outputs = [np.asarray(array) for array in model(*inputs)]
    if how == "export" and "tvm" in sys.modules:
        return "TVM's compiler was loaded"
    for array, wanted in zip(outputs, _arrays(own, "output"), strict=True):
        if array.dtype != wanted.dtype or array.shape != wanted.shape or array.tobytes() != wanted.tobytes():
            return "other values than when it was compiled"
    return ""


def in_fork(call: Callable[[], str]) -> str:
    """What the call returns in a process of its own; how that ended, if it did not return."""
    with tempfile.TemporaryFile() as answer:
        number = os.fork()
        if number == 0:
            try:
                text = call()
            except BaseException:  # noqa: BLE001  (it is the answer)
                text = traceback.format_exc()
            os.pwrite(answer.fileno(), text.encode(), 0)
            os._exit(0)
        _, status = os.waitpid(number, 0)
        return answer.read().decode() if status == 0 else f"its process ended with status {status}"


def _graph(model: Any, inputs: Sequence[Any]) -> pt.Graph:
    given = zip(model.graph.input, inputs, strict=False)
    return pt.load(model, shapes={value.name: array.shape for value, array in given if value.type.HasField("tensor_type")})


def _save(own: Path, kind: str, arrays: Sequence[Any]) -> None:
    for i, array in enumerate(arrays):
        save_tensor(numpy_helper.from_array(np.asarray(array)), own / f"{kind}_{i}.pb")


def _arrays(own: Path, kind: str) -> list[np.ndarray[Any, Any]]:
    return [numpy_helper.to_array(load_tensor(own / f"{kind}_{i}.pb")) for i in range(len([*own.glob(f"{kind}_*")]))]


def _config(folder: Path) -> dict[str, str]:
    return {"CACHE_DIR": str(folder / "cache")}


def check(cases: Iterable[Any], folder: Path) -> int:
    """How many of the cases `cpu` takes; each computes what is expected, and the same from the cache and from its export."""
    assert keep(cases, folder) == {}
    assert read_again(folder, "cache") == {}
    assert read_again(folder, "export") == {}
    return len(kept(folder))


def sample() -> list[Any]:
    """A few cases; ONNX takes long to make all."""
    import onnx.backend.test.case.node as node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family in SAMPLE:
            importlib.import_module(f"{node.__name__}.{family}")
    return [case for case in node._NodeTestCases if case.name in SAMPLE.values()]


def test_a_sample(tmp_path: Path) -> None:
    assert check(sample(), tmp_path) == len(SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_all_that_the_device_takes(part: int, tmp_path: Path) -> None:
    from tests.accelerators.tvm.node_cases import cases

    assert check(cases()[part::PARTS], tmp_path) > 0.5 * len(cases()[part::PARTS])
