"""The code of a model goes with the model: TVM's runtime keeps each library for the whole process unless it is told not to."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import partita as pt
from tests.soak.nets import Net

MAPS = Path("/proc/self/maps")


def come_and_go(folder: Path, first: int) -> tuple[int, np.ndarray]:
    """Ten models, compiled, exported, imported and called; the number of libraries that are mapped afterwards, and an output."""
    for number in range(first, first + 10):
        net = Net(number, 8)
        with pt.compile(net.graph(), "cpu", config={"CACHE_DIR": "off"}) as model:
            model.export(folder / "m.partita")
            with pt.import_model(folder / "m.partita") as again:
                kept = again(net.x)[0]
                assert net.is_right(kept) and net.is_right(model(net.x)[0])
    del model, again
    gc.collect()
    return sum("(deleted)" in line for line in MAPS.read_text().splitlines()), kept


@pytest.mark.slow
@pytest.mark.skipif(not MAPS.exists(), reason="the system does not tell what is mapped")
def test_the_code_of_a_model_goes_with_it(tmp_path: Path) -> None:
    come_and_go(tmp_path, 0)
    before, first = come_and_go(tmp_path, 10)
    copied = first.copy()
    after, _ = come_and_go(tmp_path, 20)
    assert after <= before + 5, f"{after - before} mappings more after ten models"
    np.testing.assert_array_equal(first, copied)
