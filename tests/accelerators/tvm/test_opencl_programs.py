"""Programs of `opencl`: what a driver takes, what it built, and what travels in an export."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators.errors import AcceleratorUnavailable, CompileError
from partita.accelerators.interface.registry import accelerator
from partita.accelerators.tvm import opencl as opencl_device
from partita.accelerators.tvm.compiled import launched
from partita.accelerators.tvm.opencl import OpenClAccelerator
from partita.accelerators.tvm.run import opencl_driver
from tests.accelerators.tvm.opencl_nets import alone, net, numbers, unit, x

pytest.importorskip("tvm")

pytestmark = pytest.mark.usefixtures("opencl")


def test_what_it_runs_and_what_not() -> None:
    device = accelerator("opencl")
    halves = pt.Graph([pt.op("Relu", x(4, dtype="bfloat16"), name="relu")])
    assert list(device.query(halves).values()) == ["'x' is bfloat16, which OpenCL does not have"]
    assert set(device.query(net()).values()) == {True}


def test_a_type_that_the_device_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_driver.Driver, "extensions", frozenset())
    name = opencl_driver.drivers()[0].name
    answer = accelerator("opencl").query(pt.Graph([pt.op("Relu", x(4, dtype="float16"), name="relu")]))
    assert answer == {"relu": f"'x' is float16, and {name} lacks cl_khr_fp16"}
    with pytest.raises(CompileError, match="the device lacks cl_khr_fp64"):
        opencl_driver.drivers()[0].program("__kernel void f(__global double* x) {}")


def test_an_export_runs_in_another_process(tmp_path: Path) -> None:
    data, path = numbers(4, 8, seed=3), tmp_path / "net.partita"
    model = pt.compile(net(), "opencl")
    model.export(path)
    np.save(tmp_path / "x.npy", data)
    code = f"""
        import numpy as np, partita as pt
        np.save({str(tmp_path / "y.npy")!r}, pt.import_model({str(path)!r})(np.load({str(tmp_path / "x.npy")!r}))[0])
    """
    alone(code)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), model(data)[0])


def test_what_tvm_cannot_say_in_opencl_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from partita.accelerators.tvm.code import codegen
    from partita.accelerators.tvm.query import support

    def silent(*_: object) -> None:
        raise CompileError("OpenCL C has no word for it")

    monkeypatch.setattr(codegen, "opencl_code", silent)
    support.forget()
    here = accelerator("opencl").configured({"ISOLATE": False})
    answers = here.query(pt.Graph([pt.op("Cosh", x(5, 7, 3), name="cosh")]))
    support.forget()
    assert answers == {"cosh": "OpenCL C has no word for it"}


def test_programs_of_several_drivers_travel_side_by_side(tmp_path: Path) -> None:
    first = pt.compile(net(), "opencl")
    unit(first).binaries["another driver"] = b"its program"
    first.export(tmp_path / "one.partita")
    second = pt.import_model(tmp_path / "one.partita")
    here = unit(second).driver.identity
    assert unit(second).binaries.keys() == {"another driver", here}
    assert unit(second).binaries["another driver"] == b"its program"
    unit(second).binaries[here] = b"a program that the driver does not take"
    np.testing.assert_array_equal(second(numbers(4, 8))[0], first(numbers(4, 8))[0])


class Renamed(opencl_driver.Driver):
    """The same device under another name, and with one extension more."""

    @property
    def identity(self) -> str:
        return f"another {super().identity}"

    @property
    def extensions(self) -> frozenset[str]:
        return super().extensions | {"cl_intel_subgroups"}


def test_one_file_holds_what_two_drivers_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two real drivers where there are two, else the one under another name: each runs its own program out of one file. The
    kernels are made for the smaller one, which runs them too when the larger one has exported them again."""
    listed = sorted(opencl_driver.drivers(), key=lambda driver: (driver.local_memory, driver.threads))
    two = listed[:2] if len(listed) > 1 else (listed[0], Renamed(listed[0].device, listed[0].context, listed[0].process))
    for module in (launched, opencl_device):
        monkeypatch.setattr(module, "drivers", lambda: two)
    path, config = tmp_path / "net.partita", {"opencl": {"DEVICE_ID": "1"}}
    first = pt.compile(net(), "opencl")
    first.export(path)
    (wanted,) = first(numbers(4, 8))
    pt.import_model(path, config=config).export(path)
    second = pt.import_model(path, config=config)
    assert len(unit(second).binaries) == 2 and unit(second).binaries.keys() == {driver.identity for driver in two}

    def built(*_: object) -> None:
        raise AssertionError("built from the source")

    takes_binaries = {driver.device.platform.name.strip() for driver in two} <= {"Oclgrind", "Intel(R) OpenCL"}
    if takes_binaries:  # Another driver may refuse what it built itself, which is built again from the source then.
        monkeypatch.setattr(opencl_driver.Driver, "lacks", built)
        assert two[0].program("", unit(second).binaries[two[0].identity]).all_kernels()
    assert unit(second).driver is two[1]
    np.testing.assert_allclose(second(numbers(4, 8))[0], wanted, rtol=1e-5)
    third = pt.import_model(path, config={"opencl": {"DEVICE_ID": "0"}})
    np.testing.assert_allclose(third(numbers(4, 8))[0], wanted, rtol=1e-5)


def test_kernels_can_be_looked_at() -> None:
    first = unit(pt.compile(net(), "opencl")).kernels()[0]
    assert first.schedule == "gpu_gemm" and "__kernel void" in first.source and first.source == first.assembly


def test_no_package_and_no_driver_are_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    opencl_driver.opencl.cache_clear()
    try:
        with pytest.raises(AcceleratorUnavailable, match=r"pyopencl cannot be imported[^$]*pip install 'partita\[opencl\]'"):
            opencl_driver.opencl()
    finally:
        monkeypatch.undo()
        opencl_driver.opencl.cache_clear()
    monkeypatch.setattr(opencl_driver.opencl(), "get_platforms", list)
    with pytest.raises(AcceleratorUnavailable, match="no OpenCL driver works here[^$]*pip install pocl-binary-distribution"):
        opencl_driver.drivers.__wrapped__()


def test_a_driver_that_builds_nothing_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise CompileError("error: unknown target CPU")

    monkeypatch.setattr(opencl_driver.Driver, "program", refuse)
    with pytest.raises(AcceleratorUnavailable, match="is of no use: error: unknown target CPU"):
        opencl_driver.drivers.__wrapped__()


def test_what_the_driver_complains_of_is_one_line() -> None:
    with pytest.raises(CompileError, match="its driver refuses the kernels: .*error.*nonsense"):
        opencl_driver.drivers()[0].program("__kernel void f() { nonsense; }")


def test_a_program_for_a_larger_device_says_so() -> None:
    device = accelerator("opencl")
    assert isinstance(device, OpenClAccelerator)
    config = device.full_config({})
    assert device.misfit(device.identity(config), config) is None
    answer = device.misfit({"opencl": "999999x48+cl_khr_new"}, config)
    assert answer is not None and answer.startswith("it was compiled for work-groups of 999999 items and 48 bytes; here they")
    assert device.misfit({"opencl": "1x1+cl_khr_new"}, config) == "it was compiled for a device with cl_khr_new"
