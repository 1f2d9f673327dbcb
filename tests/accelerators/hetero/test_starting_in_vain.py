"""START=now with a configuration that asks for what is not here: one error at compile, as without START, and not a model that
stays where it began."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from partita.accelerators import api
from partita.graph.readers.text import parse
from tests.accelerators.hetero.small_devices import device
from tests.accelerators.package.models import ROOT

NET = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\n y = Exp(a) }")
NOW = {"START": "now", "START_WITH": "reference"}
X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def compile_now(cache: Path, **hetero: str) -> pt.CompiledModel:
    return pt.compile(NET, "cpu", {"HETERO": hetero, "cpu": {"CACHE_DIR": str(cache)}})


@pytest.mark.parametrize("place", ["a file", "beneath a file", "open to others"])
@pytest.mark.parametrize("hetero", [NOW, {}], ids=["now", "wait"])
def test_a_cache_that_cannot_be_is_one_error_with_start_and_without(place: str, hetero: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    cache = tmp_path / {"a file": "file", "beneath a file": "file/cache", "open to others": "open"}[place]
    with pytest.raises(pt.BadConfig, match="it cannot be made: (File exists|Not a directory)|others may write to it") as raised:
        compile_now(cache, **hetero)
    assert raised.value.where == f"cache folder {str(cache)!r}" or str(cache) in str(raised.value)
    assert raised.value.remedy


def test_a_default_cache_that_cannot_be_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tvm")
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="nothing is cached"):
        model = pt.compile(NET, "cpu", {"HETERO": NOW}).wait(300)
    assert model.properties.devices == ("cpu",)
    assert np.allclose(model(X)[0], np.exp(np.maximum(X, 0)), rtol=1e-6)


@pytest.mark.parametrize(("name", "may"), [
    ("new", True), ("new/beneath", True), ("own", True),
    ("file", False), ("file/beneath", False), ("open", False), ("link", False),
])
def test_a_file_goes_to_the_engine_unread_only_where_the_cache_may_be(name: str, may: bool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for folder, mode in (("own", 0o700), ("open", 0o777)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder).chmod(mode)
    asked = {"START": "now", "CACHE_DIR": str(tmp_path / name)}
    assert api._threads("cpu", asked) == (0 if may else None)


def test_words_for_a_cache_name_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "off").write_text("mine")
    assert api._threads("cpu", {"START": "now", "CACHE_DIR": "off"}) == 0


def test_a_device_that_nobody_knows_is_named_with_its_key() -> None:
    with device("own"), pytest.raises(pt.UnknownDevice) as raised:
        pt.compile(NET, "own", {"START": "now", "START_WITH": "onnxruntim"})
    assert "START_WITH 'onnxruntim' in the config of HETERO" in str(raised.value)
    assert "onnxruntime" in str(raised.value.remedy)


def absent(self, config) -> str:
    return "there is no card here"


def test_a_device_that_only_compiles_here_does_not_answer_first() -> None:
    with device("own"), device("card", why_not_here=absent), pytest.raises(pt.AcceleratorUnavailable) as raised:
        pt.compile(NET, "own", {"START": "now", "START_WITH": "card"})
    assert str(raised.value) == (
        "START_WITH 'card' in the config of HETERO: it cannot run here: there is no card here\n"
        "  Name another device, or leave START_WITH out."
    )


def test_of_several_devices_that_answer_first_those_are_passed_over_that_cannot_run_here(beta) -> None:
    with device("own"), device("card", why_not_here=absent):
        model = pt.compile(NET, "own", {"START": "now", "START_WITH": "HETERO:card,beta"})
        assert np.array_equal(model(X)[0], np.exp(np.maximum(X, 0)))
        assert {unit.device.label for unit in model.units} <= {"beta", "own"}
        assert model.wait(300).properties.devices == ("own",)


FULL = """
import resource, signal, sys, warnings
import numpy as np, partita as pt
from partita.graph.readers.text import parse
warnings.simplefilter("ignore")
net = parse("graph net(x: float32[2, 3]) -> (y) { a = Relu(x)\\n y = Exp(a) }")
x = np.ones((2, 3), np.float32)
pt.compile(net, "reference")(x)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
model = pt.compile(net, "cpu", {"START": "now", "START_WITH": "reference", "CACHE_DIR": sys.argv[1]})
assert np.allclose(model(x)[0], np.e)
assert model.wait(300).properties.devices == ("cpu",) and np.allclose(model(x)[0], np.e)
"""


def test_a_full_disk_keeps_no_kernels_from_a_model(tmp_path: Path) -> None:
    """No file may have more than 20 KB, as none can grow on a full disk."""
    pytest.importorskip("tvm")
    command = [sys.executable, "-c", FULL, str(tmp_path / "cache")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
