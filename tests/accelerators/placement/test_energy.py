"""Energy counters: files as those of RAPL, a library like NVML, and costs in microjoules."""

from __future__ import annotations

import ctypes
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import pytest

import partita as pt
from partita.accelerators.precision import measured_costs
from partita.accelerators.process import energy
from tests.accelerators.placement.test_measure import brief  # noqa: F401  planted devices
from tests.accelerators.placement.test_place import chain


@pytest.fixture
def zones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two processors and a part of one, which counts in the whole already."""
    for name, used in (("intel-rapl:0", 100), ("intel-rapl:1", 900), ("intel-rapl:0:0", 50)):
        (tmp_path / "zones" / name).mkdir(parents=True)
        (tmp_path / "zones" / name / "energy_uj").write_text(f"{used}\n")
        (tmp_path / "zones" / name / "max_energy_range_uj").write_text("1000\n")
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "zones")
    return tmp_path / "zones"


def test_processors_are_added_and_wrap_around(zones: Path) -> None:
    joules = energy.host_counter()
    assert joules() == 0
    (zones / "intel-rapl:0" / "energy_uj").write_text("300\n")
    (zones / "intel-rapl:1" / "energy_uj").write_text("50\n")
    assert joules() == pytest.approx((200 + 150) / 1e6)
    with pytest.raises(pt.NotSupported, match="the energy counter does not move"):
        energy.watts(joules, lambda: None, 0.0)
    (zones / "intel-rapl:1" / "energy_uj").write_text("?")
    with pytest.raises(pt.NotSupported, match=r"the RAPL counter .*intel-rapl:1/energy_uj cannot be read"):
        joules()


def test_power_is_the_energy_of_repeated_calls_over_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [100.0]
    monkeypatch.setattr(energy, "perf_counter", lambda: times[-1])
    assert energy.watts(lambda: 7 * times[-1] + 3, lambda: times.append(times[-1] + 0.5), 2.0) == 7.0
    assert times == [100.0, 100.5, 101.0, 101.5, 102.0]


def test_a_machine_without_a_counter_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(energy, "POWERCAP", tmp_path / "none")
    with pytest.raises(pt.NotSupported, match="this machine has no RAPL counter: there is no zone in .*none"):
        pt.measure(chain("Relu"), "left", energy=True)
    monkeypatch.setattr(energy, "NVML", "libno-such-library.so")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(pt.NotSupported, match="NVML is not here: libno-such-library"):
        energy.gpu_counter(None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with pytest.raises(pt.NotSupported, match="CUDA_VISIBLE_DEVICES renumbers the GPUs"):
        energy.gpu_counter(None)


def test_gpus_are_read_by_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([1000, 1500])

    def handle(index: int, address: Any) -> int:
        address._obj.value = 40 + index
        return 0 if index < 2 else 2

    def consumption(device: Any, address: Any) -> int:
        address._obj.value = next(used)
        return 0 if device.value == 41 else 3

    library = SimpleNamespace(
        nvmlInit_v2=lambda: 0, nvmlDeviceGetHandleByIndex_v2=handle, nvmlDeviceGetTotalEnergyConsumption=consumption
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert energy.gpu_counter("1")() == 1.5
    with pytest.raises(pt.NotSupported, match="nvmlDeviceGetHandleByIndex_v2 of NVML failed with status 2"):
        energy.gpu_counter("7")


def test_costs_are_microjoules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(measured_costs, "host_counter", lambda: lambda: 10 * perf_counter())  # 10 watts
    graph = chain("Relu", "Tanh")
    times, used = (pt.measure(graph, "left", energy=flag) for flag in (False, True))
    assert (times.unit, used.unit) == ("µs", "µJ")
    assert sum(used.times["left"].values()) == pytest.approx(10 * sum(times.times["left"].values()), rel=0.5)
    assert sum(used.times["left"].values()) >= 10 * 13_000
    used.save(tmp_path / "costs.json")
    assert pt.Costs.load(tmp_path / "costs.json") == used
    assert str(used).endswith(" µJ in all") and " µJ; costs measured on " in str(pt.place(graph, "left", costs=used).certificate)
    with pytest.raises(pt.AcceleratorError, match="its unit is 'kWh'"):
        pt.Costs.from_json(used.to_json().replace("µJ", "kWh"))
