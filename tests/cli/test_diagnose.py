"""`partita diagnose`: the table, the node to blame, the picture and the exit status."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.cli.conftest import Command
from tests.insight.small_devices import device_of


def test_what_is_right(partita: Command, model: str) -> None:
    done = partita(f"diagnose {model} --devices onnxruntime")
    assert done.status == 0, done.err
    assert done.out.endswith("1 subgraph is right on the trusted run's inputs\nnothing is to blame\n")
    assert partita(f"diagnose {model} --devices reference --json").json["ok"] is True


def test_what_is_wrong(partita: Command, model: str) -> None:
    np.save("x.npy", np.ones((1, 3, 8, 8), np.float32))
    with device_of(lambda node, inputs: [np.abs(inputs[0])], "Relu") as device:
        done = partita(f"diagnose {model} --devices {device} --input x.npy --svg errors.svg")
        data = partita(f"diagnose {model} --devices {device} --input x.npy --json").json
    assert done.status == 1
    assert "relu1 (Relu) on small: wrong numbers" in done.out
    assert data["fault"]["nodes"] == ["relu1"]
    assert Path("errors.svg").read_text().startswith("<svg ")


def test_made_up_inputs_follow_the_seed(partita: Command, model: str) -> None:
    first, again, other = (partita(f"diagnose {model} --devices reference --json --seed {seed}").json for seed in (1, 1, 2))
    assert first == again != other
