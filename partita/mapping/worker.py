"""The process that runs a model for `map_batches`: python -m partita.mapping.worker MODEL.partita

First a frame comes in with the key of the file, if it is signed; once the model is imported, a frame goes out on what was
standard output. Then each batch starts with a frame with the number of calls, followed by a frame of arrays for each call. All of
these are read before the first answer goes out, so that the two sides never write to each other at the same time. Answers are
frames in the same order. The process ends when its input does."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import partita as pt
from partita.mapping.frames import Frame, frame_of, read_frame
from partita.passes.python_child import own_folder_last


def main() -> None:
    """Answer one call after another."""
    own_folder_last()
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        words, _ = read_frame(sys.stdin.buffer) or ({"key": None}, {})
        model = pt.import_model(sys.argv[1], key=None if words["key"] is None else bytes.fromhex(words["key"]))
    except pt.PartitaError as error:
        replies.writelines(frame_of({"unready": str(error)}, {}))
        replies.flush()
        return
    replies.writelines(frame_of({"ready": True}, {}))
    replies.flush()
    while (calls := read_calls()) is not None:
        for arrays in calls:
            replies.writelines(answer(model, arrays))
        replies.flush()


def read_calls() -> list[dict[str, Any]] | None:
    """The calls of one batch; None if there are no more."""
    frame = read_frame(sys.stdin.buffer)
    if frame is None:
        return None
    calls = []
    for _ in range(frame[0]["calls"]):
        frame = read_frame(sys.stdin.buffer)
        if frame is None:
            return None
        calls.append(frame[1])
    return calls


def answer(model: pt.CompiledModel, arrays: dict[str, Any]) -> Frame:
    """The outputs of a call by name, and its seconds; or its error message."""
    start = time.perf_counter()
    try:
        outputs = dict(zip(model.graph.output_names, model(arrays), strict=True))
        return frame_of({"seconds": time.perf_counter() - start}, outputs)
    except pt.PartitaError as error:
        return frame_of({"error": str(error)}, {})


if __name__ == "__main__":
    main()
