"""The process that runs a model for `map_batches`, or compiles one for `compile_many`, which leaves the result in the cache."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import partita as pt
from partita.accelerators.process.memory import Packing, SharedMemory, described
from partita.accelerators.process.serving import serve
from partita.mapping.processes import packed
from partita.passes.python_child import own_folder_last


class ModelServer:
    """The model, imported by the first request; later ones each hold several calls."""

    def __init__(self, requests: SharedMemory, replies: SharedMemory) -> None:
        self._requests, self._replies = requests, replies

    def answer(self, request: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """For each call its outputs by name, and its seconds; or its error message."""
        if "calls" in request:
            packing = Packing()
            answers = [self._called(call, packing) for call in request["calls"]]
            packing.write(self._replies)
            return answers
        own_folder_last()
        if "compile" in request:
            pt.compile(pt.load(request["compile"]), request["device"], request["config"]).wait()
        else:
            key = request["key"]
            self._model = pt.import_model(request["model"], key=None if key is None else bytes.fromhex(key))
        return None

    def _called(self, call: Mapping[str, Any], packing: Packing) -> dict[str, Any]:
        arrays = {name: described(value, self._requests) for name, value in call.items()}
        start = time.perf_counter()
        try:
            outputs = dict(zip(self._model.graph.output_names, self._model(arrays), strict=True))
            return {"seconds": time.perf_counter() - start, "outputs": packed(outputs, packing)}
        except pt.PartitaError as error:
            return {"error": str(error)}


if __name__ == "__main__":
    serve(lambda requests, replies: ModelServer(requests, replies).answer)
