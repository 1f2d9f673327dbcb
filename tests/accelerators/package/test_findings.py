"""What a device found out by trying is not tried again in the next process."""

from __future__ import annotations

import pytest

import partita as pt
from partita.accelerators.store import clear
from tests.accelerators.package.models import in_new_process
from tests.graphs.networks import small_net

ASKING = """
from partita.accelerators.interface.registry import accelerator
from tests.graphs.networks import small_net
device = accelerator(args[0])
config = {"CACHE_DIR": args[1]} if args[1] else {}
if args[0] == "cpu":
    from partita.accelerators.tvm.query import support
    real, count = support._tried, []
    support._tried = lambda *given: count.append(1) or real(*given)
else:
    real, count = device._trials._attempt, []
    device._trials._attempt = lambda alone: count.append(1) or real(alone)
pt.compile(small_net(), args[0], config=config)
print(len(count), "tvm" in sys.modules)
"""


def asked(device, folder="") -> tuple[int, bool]:
    count, imported = in_new_process(ASKING, device, folder).stdout.split()
    return int(count), imported == "True"


def usable(device) -> str:
    if not any(info.name == device and info.usable for info in pt.devices()):
        pytest.skip(f"there is no {device} here")
    return device


@pytest.mark.parametrize("device", ["cpu", "openvino", "onnxruntime"])
@pytest.mark.thinned(4)
def test_the_second_process_tries_nothing(device, cache_home):
    first, _ = asked(usable(device))
    assert first > 0
    assert asked(device) == (0, False)


BOTH = """
from tests.graphs.networks import small_net
for folder in args:
    pt.compile(small_net(), "cpu", config={"CACHE_DIR": folder})
"""


def test_a_second_cache_gets_what_was_found_out_before(tmp_path):
    usable("cpu")
    in_new_process(BOTH, tmp_path / "first", tmp_path / "second")
    assert asked("cpu", tmp_path / "second") == (0, False)


@pytest.mark.slow
def test_damaged_findings_are_found_out_anew_and_none_are_kept_where_nothing_is(cache_home):
    device = usable("cpu")
    first, _ = asked(device)
    (path,) = (cache_home / "findings").iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    assert asked(device)[0] == first
    assert asked(device)[0] == 0
    clear()
    assert asked(device, "off")[0] == first
    assert list(cache_home.rglob("findings/*")) == []


def test_a_device_that_finds_nothing_out_has_no_file(cache_home):
    pt.compile(small_net(), "reference")
    assert not (cache_home / "findings").exists()
