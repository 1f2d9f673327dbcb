"""The process that compiles one model for `compile_many`: python -m partita.mapping.compiler MODEL.onnx

It reads the devices and their configuration from standard input. The result stays in the cache."""

from __future__ import annotations

import json
import sys

import partita as pt
from partita.graph.logs import logger
from partita.passes.python_child import own_folder_last


def main() -> None:
    """Compile the model once."""
    own_folder_last()
    question = json.loads(sys.stdin.read())
    try:
        pt.compile(pt.load(sys.argv[1]), question["device"], question["config"]).wait()
    except pt.PartitaError as error:
        # The caller compiles it too, and raises this error there.
        logger("map").info("%s", error)


if __name__ == "__main__":
    main()
