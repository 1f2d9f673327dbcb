"""Each meaning of our own has a reason, and ONNX's reference evaluator really does what the reason says.

Nothing is timed: "slow" is a count of the steps that Python takes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from partita.graph.numerics import evaluate, fallback
from partita.graph.numerics.registry import find, meanings
from tests.numerics import cases_elementwise, cases_layers, cases_layout, cases_reasons, cases_windows
from tests.numerics.cases_reasons import Witness

SLOW = 1.5
"""How many times our steps ONNX's have to be."""


def test_every_meaning_has_a_reason_that_holds() -> None:
    waiting = {(domain, op, row.since): row.why for domain, op, row in meanings()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for witness in _witnesses():
            row = find(witness.op, witness.domain, witness.version)
            key = (witness.domain, witness.op, row.since if row is not None else 0)
            if key in waiting and _shows(witness, waiting[key].kind):
                del waiting[key]
    assert not waiting, "no case shows that ONNX's evaluator does what the reason of these says"


def test_a_reason_names_its_case() -> None:
    assert not [op for _, op, row in meanings() if row.why.kind != "absent" and not row.why.case]


def _witnesses() -> Iterator[Witness]:
    yield from cases_reasons.WITNESSES
    for cases in (cases_elementwise.ELEMENTWISE, cases_elementwise.REDUCTIONS, cases_elementwise.QUANTIZED,
                  cases_layers.NORMS, cases_layers.RECURRENT, cases_layout.SHAPES,
                  cases_windows.WINDOWED, cases_windows.RESIZE):
        for case in cases:
            for version in case.versions():
                yield Witness(case.op, version, case.inputs, case.attrs, case.outputs)
                yield Witness(case.op, version, [_halved(x) for x in case.inputs], case.attrs, case.outputs)


def _halved(x: Any) -> Any:
    return x.astype(np.float16) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x


def _shows(witness: Witness, kind: str) -> bool:
    """Does ONNX's evaluator do this in this case?"""
    if kind == "absent":
        return not fallback.supports(witness.op, witness.domain, witness.version)
    try:
        theirs = _theirs(witness)
    except Exception:  # noqa: BLE001  whatever it raises, it fails
        return kind == "fails" and bool(_ours(witness))
    if kind == "slow":
        return _steps(lambda: _theirs(witness)) >= SLOW * _steps(lambda: _ours(witness))
    return kind == "differs" and not _is_ours(theirs, witness)


def _is_ours(theirs: tuple[Any, ...], witness: Witness) -> bool:
    try:
        return all(map(_same, _ours(witness), theirs))
    except ValueError:  # we refuse what ONNX's evaluator takes
        return False


def _ours(witness: Witness) -> tuple[Any, ...]:
    return evaluate(
        witness.op, witness.inputs, witness.attributes,
        domain=witness.domain, version=witness.version, n_outputs=witness.outputs,
    )


def _theirs(witness: Witness) -> tuple[Any, ...]:
    """What `evaluate` would return if we had no meaning of the op."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["partita.graph.numerics.evaluate"], "find", lambda *_: None)
        return _ours(witness)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) or isinstance(b, list):
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(map(_same, a, b))
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fV":
        return bool((a == b).all())
    slack = 1e-4 if a.dtype.itemsize > 2 else 1e-2
    return np.allclose(a.astype(np.float64), b.astype(np.float64), rtol=slack, atol=slack, equal_nan=True)


def _steps(action: Callable[[], Any]) -> int:
    """How many functions the action calls in Python and from Python."""
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return steps
