"""`pt.from_torch`: live modules come in and give torch's results. Needs torch, so only `make check-all` runs it whole."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import partita as pt

MODULES = ("bert", "bert_dynamic", "vit", "gpt2", "gate")

# pytest.importorskip would load torch in each quick run as well: seconds, only to deselect the tests.
needs_torch = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "onnxscript", "transformers"))), reason="needs torch, onnxscript, transformers"
)


def run(graph: pt.Graph, inputs: Mapping[str, Any], tmp_path: Path) -> list[np.ndarray]:
    """The graph's outputs, by onnxruntime on the file that `pt.save` writes."""
    pt.save(graph, tmp_path / "out.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "out.onnx")
    return session.run(None, {name: np.asarray(value) for name, value in inputs.items()})


def assert_close(outputs: list[np.ndarray], wanted: list[Any]) -> None:
    for ours, torchs in zip(outputs, wanted, strict=True):
        reference = torchs.detach().numpy()
        assert np.abs(ours - reference).max() <= 1e-5 * np.abs(reference).max()


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("name", MODULES)
def test_a_module_gives_torch_s_results(name: str, tmp_path: Path) -> None:
    from tests.torch_modules import sample

    result = sample(name)
    graph = pt.from_torch(result.module, result.inputs, dynamic_shapes=result.dynamic)
    assert graph.name == type(result.module).__name__
    assert [node.name for node in graph.inputs] == list(result.inputs)
    assert_close(run(graph, result.inputs, tmp_path), result.expected())


@pytest.mark.slow
@needs_torch
def test_other_inputs_give_other_results_and_still_torch_s(tmp_path: Path) -> None:
    import torch

    from tests.torch_modules import sample

    result = sample("bert_dynamic")
    graph = pt.from_torch(result.module, result.inputs, dynamic_shapes=result.dynamic)
    before = result.expected()
    result.inputs.update(input_ids=torch.randint(1, 120, (3, 7)), attention_mask=torch.ones(3, 7, dtype=torch.int64))
    after = result.expected()
    assert not torch.allclose(before[1][0], after[1][0])
    assert_close(run(graph, result.inputs, tmp_path), after)


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("how", ["tensor", "array", "tuple", "list", "mapping"])
def test_example_inputs_may_be_written_in_several_ways(how: str, tmp_path: Path) -> None:
    import torch

    module, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    example = {"tensor": x, "array": x.numpy(), "tuple": (x,), "list": [x], "mapping": {"input": x}}[how]
    graph = pt.from_torch(module, example, name="linear")
    assert graph.name == "linear"
    assert_close(run(graph, {"input": x}, tmp_path), [module(x)])


@pytest.mark.slow
@needs_torch
def test_the_module_is_left_as_it_was(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4))
    module[2].eval()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    x = torch.randn(8, 4)
    graph = pt.from_torch(module, x)
    assert [part.training for part in module.modules()] == [True, True, True, False]
    assert all(torch.equal(state[name], tensor) for name, tensor in module.state_dict().items())
    assert capfd.readouterr() == ("", "")
    assert "Dropout" not in {node.op for node in graph.nodes}
    assert_close(run(graph, {"input": x}, tmp_path), [module.eval()(x)])


@pytest.mark.slow
@needs_torch
def test_errors_name_the_module_and_what_torch_said(capfd: pytest.CaptureFixture[str]) -> None:
    import torch

    with pytest.raises(pt.PartitaError, match=r"Linear: torch could not export the module: .*\[3, 3\] X \[4, 4\]"):
        pt.from_torch(torch.nn.Linear(4, 4), torch.randn(3, 3))
    with pytest.raises(pt.PartitaError, match=r"'type' object is not a torch\.nn\.Module"):
        pt.from_torch(torch.nn.Linear, torch.randn(3, 3))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("missing", ["torch", "onnxscript"])
def test_without_its_packages_the_error_names_the_extra(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.graph.readers import torch as reader

    monkeypatch.setattr(reader, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(pt.PartitaError, match=rf"'{missing}', which is not installed\n.*partita\[torch\]"):
        reader.from_torch(object(), ())


def test_naming_from_torch_does_not_load_torch() -> None:
    code = "import partita as pt, sys; pt.from_torch; assert 'torch' not in sys.modules and 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
