"""Every requirement is bounded below and above."""

from __future__ import annotations

import subprocess
from pathlib import Path
from unittest import mock

import pytest
from packaging.requirements import Requirement

from tests import bounds


@pytest.mark.parametrize("line", bounds.requirements((*bounds.EXTRAS, "torch")))
def test_a_requirement_has_two_ends(line: str) -> None:
    operators = {bound.operator for bound in Requirement(line).specifier}
    assert operators & {">=", "~=", "=="}, f"{line} has no lower bound"
    assert operators & {"<", "<=", "~=", "=="}, f"{line} has no upper bound"


@pytest.mark.parametrize(
    ("requirement", "listed", "wanted"),
    [
        ("onnx >=1.19, <1.24", "1.23.2, 1.19.1, 1.19.0, 1.18.0", "onnx ==1.19.0"),
        ("apache-tvm-ffi >=0.1.14.post0, <0.1.15", "0.1.15, 0.1.14.post1, 0.1.14.post0, 0.1.13", "apache-tvm-ffi ==0.1.14.post0"),
        ("numpy >=1.26", "2.10.0, 2.9.0, 1.26.4, 1.26.10, 1.26.0", "numpy ==1.26.0"),
    ],
)
def test_the_lowest_version_is_one_that_there_is(requirement: str, listed: str, wanted: str) -> None:
    completed = subprocess.CompletedProcess([], 0, f"name (1)\nAvailable versions: {listed}\n", "")
    with mock.patch.object(bounds.subprocess, "run", return_value=completed):
        assert bounds.lowest(requirement, Path("python")) == wanted


def test_what_has_no_lower_bound_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no lower bound"):
        bounds.lowest("numpy <3", Path("python"))
