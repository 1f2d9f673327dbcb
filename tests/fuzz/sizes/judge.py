"""What a model answers at one size beside what onnxruntime and the reference answer."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

import partita as pt
from partita.graph.errors import PartitaError
from partita.graph.interpret import interpret
from partita.graph.types import Array
from partita.graph.writers.onnx.model import to_model
from partita.passes.infer.contract import require_fit
from tests.fuzz.guard.pages import guarded_copy
from tests.fuzz.models.stability import difference, expected
from tests.fuzz.sizes.opened import Opened, Shapes

FAILURES = ("accepted", "wrong", "refused", "raised")
"""Verdicts that nothing explains: an answer where both oracles refuse, another answer than theirs, none where both answer, and an
exception that is not a PartitaError."""

SIZES = "sizes"
"""The prefix of a difference of two shapes or types."""

Answer = list[Any] | str
"""Outputs, or why there are none."""

Tell = Callable[[str], None]


@attrs.frozen
class Row:
    """One call."""

    verdict: str
    """One of FAILURES; "right" (the oracles' answer), "held" (refused, as by an oracle), "claimed" (the oracles' answer, though
    the sizes contradict a symbol), "unsure" (refused where the oracles' answer is empty, or a size is 0 and the reference is the
    one oracle) or "none" (the model is refused)."""
    shapes: Shapes
    detail: str = ""


class Oracle:
    """onnxruntime and the reference, each asked once for each size."""

    def __init__(self, model: Opened, crashed: Collection[Shapes] = ()) -> None:
        """`crashed` are the sizes at which onnxruntime ends the process."""
        self._model = model
        self._crashed = frozenset(crashed)
        self._session = _session(model.graph)
        self._answers: dict[Shapes, tuple[Answer, Answer | None]] = {}

    def answers(self, shapes: Shapes) -> tuple[Answer, Answer | None]:
        """The reference's outputs and onnxruntime's, or why there are none; None where onnxruntime does not take the model."""
        if shapes not in self._answers:
            feeds = self._model.fitted(shapes)
            self._answers[shapes] = self._reference(feeds), None if shapes in self._crashed else self._engine(feeds)
        return self._answers[shapes]

    def difference(self, outputs: Sequence[Any], shapes: Shapes) -> str | None:
        """How the outputs differ from each oracle's that there are, beyond what roundings may do."""
        answered = [answer for answer in self.answers(shapes) if isinstance(answer, list)]
        wrong = [_difference(outputs, answer) for answer in answered]
        if not all(wrong):
            return None
        if isinstance(self.answers(shapes)[0], list) and not str(wrong[0]).startswith(SIZES):
            with np.errstate(all="ignore"):
                bounds = expected(self._model.graph, self._model.fitted(shapes))
            if all(difference(output, bound) is None for output, bound in zip(outputs, bounds, strict=True)):
                return None
        return wrong[0]

    def _reference(self, feeds: Sequence[Array]) -> Answer:
        try:
            with np.errstate(all="ignore"):
                return interpret(self._model.graph, feeds, check=require_fit)
        except PartitaError as error:
            return str(error)

    def _engine(self, feeds: Sequence[Array]) -> Answer | None:
        if self._session is None:
            return None
        names = [node.name for node in self._model.graph.inputs]
        try:
            return list(self._session.run(None, dict(zip(names, feeds, strict=True))))
        except Exception as error:  # noqa: BLE001  (onnxruntime has errors of many kinds)
            return str(error)


def _session(graph: pt.Graph) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(to_model(graph).SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001
        return None


def judged(model: Opened, sizes: Sequence[Shapes], where: str, at_end: bool, tell: Tell, oracle: Oracle) -> Iterator[Row]:
    """The model at each of these sizes, its inputs at the ends of their pages or at the beginnings."""
    try:
        tell("compile")
        compiled = pt.compile(model.graph, where)
    except PartitaError as error:
        yield Row("none", (), str(error))
        return
    with compiled:
        for shapes in sizes:
            tell(f"oracle at {json.dumps(shapes)}")
            oracle.answers(shapes)
            tell(f"call at {json.dumps(shapes)}")
            yield _judged(model, shapes, compiled, at_end, oracle)


def _judged(model: Opened, shapes: Shapes, compiled: Any, at_end: bool, oracle: Oracle) -> Row:
    reference, engine = oracle.answers(shapes)
    feeds = [guarded_copy(array, at_end) for array in model.fitted(shapes)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            outputs = list(compiled(*feeds))
        except PartitaError as error:
            refused = isinstance(reference, str) or isinstance(engine, str) or contradicts(model, shapes)
            alone = engine is None and any(0 in shape for shape in shapes)
            is_unsure = alone or not any(np.size(value) for value in reference)
            return Row("held" if refused else "unsure" if is_unsure else "refused", shapes, str(error))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what the sweep looks for)
            return Row("raised", shapes, f"{type(error).__name__}: {error}")
    if not isinstance(reference, list) and not isinstance(engine, list):
        return Row("accepted", shapes, f"{_shapes(outputs)} where the reference says: {reference}; onnxruntime: {engine}")
    wrong = oracle.difference(outputs, shapes)
    if wrong is not None:
        return Row("wrong", shapes, wrong)
    return Row("claimed" if contradicts(model, shapes) else "right", shapes)


def contradicts(model: Opened, shapes: Shapes) -> bool:
    """Do two dimensions of one symbol differ?"""
    pairs = {(dim, size) for dims, shape in zip(model.dims, shapes, strict=True) for dim, size in zip(dims, shape, strict=True)}
    return len({dim for dim, _ in pairs}) < len(pairs)


def _difference(outputs: Sequence[Any], answer: Sequence[Any]) -> str | None:
    """How the outputs differ from an oracle's, relative to the largest number."""
    for number, (output, right) in enumerate(zip(outputs, answer, strict=True)):
        if not isinstance(right, np.ndarray):
            continue
        if not isinstance(output, np.ndarray) or (output.shape, output.dtype) != (right.shape, right.dtype):
            dtype = getattr(output, "dtype", None)
            return f"{SIZES} {dtype}{list(np.shape(output))} instead of {right.dtype}{list(right.shape)}"
        far = _far(output, right)
        if far is not None:
            return f"output {number}: {far}"
    return None


def _far(output: Array, right: Array) -> str | None:
    if output.dtype.kind not in "fV" or not output.size:
        same = np.asarray(output == right)
        return None if same.all() else f"{np.count_nonzero(~same)} of {same.size} differ"
    a, b = output.astype(np.float64), right.astype(np.float64)
    finite = np.isfinite(b)
    allowed = float(np.abs(b[finite]).max(initial=0.0)) * (2e-2 if output.dtype.itemsize == 2 else 1e-4)
    with np.errstate(all="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed)
    return None if same.all() else f"{np.count_nonzero(~same)} of {same.size} differ: {a[~same][0]} instead of {b[~same][0]}"


def _shapes(outputs: Sequence[Any]) -> str:
    return ", ".join(str(list(np.shape(output))) for output in outputs)
