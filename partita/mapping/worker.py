"""The process that runs a model for `map_batches`: python -m partita.mapping.worker MODEL.partita

A frame goes out on what was standard output once the model is imported. Then frames come in on standard input, each the arrays of
one call, and go out in the same order. It ends when its input does."""

from __future__ import annotations

import os
import sys

import partita as pt
from partita.mapping.frames import read_frame, write_frame


def main() -> None:
    """Answer one call after another."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        model = pt.import_model(sys.argv[1])
    except pt.PartitaError as error:
        write_frame(replies, {"unready": str(error)}, {})
        return
    write_frame(replies, {"ready": True}, {})
    names = model.graph.output_names
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        _, arrays = frame
        try:
            write_frame(replies, {}, dict(zip(names, model(arrays), strict=True)))
        except pt.PartitaError as error:
            write_frame(replies, {"error": str(error)}, {})


if __name__ == "__main__":
    main()
