"""What tests of kernels for GPUs ask for."""

from __future__ import annotations

import pytest

from accelerators.errors import AcceleratorUnavailable


@pytest.fixture(scope="session")
def opencl() -> None:
    """A driver of OpenCL; without one the test is skipped."""
    from accelerators.tvm.run import opencl_driver

    try:
        opencl_driver.drivers()
    except AcceleratorUnavailable as unavailable:
        pytest.skip(f"no OpenCL here: {unavailable.cause}")
