"""Tokens per second of GPT-2 with its weights alone quantized, side by side.

    python -m benchmarks.precision --decode [--threads N ...] [--tiny]

A model of GPT-2's sizes decodes one token after 128, its weights bytes with a scale for each column, or half bytes with one for
each block of 32, 64 or 128. Partita's `cpu`, onnxruntime and OpenVINO read the same QDQ form, save that the peers gather from
tables of float32; onnxruntime also takes it as its own MatMulNBits. All take turns in one process. `memory` is what Partita's
kernels hold of weights, over the bytes of the constants.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
import numpy as np

import partita as pt
from benchmarks.machine import machine_name, processor
from benchmarks.models.decoder import Decoder, in_blocks, narrow, with_wide_tables
from benchmarks.models.files import Model
from benchmarks.precision import distance, onnxruntime, openvino, processor_clocked
from benchmarks.timing import Ratio, clocked, interleaved, ratio, summary

FORMS = ((8, 0), (4, 32), (4, 64), (4, 128))
"""Bits of a weight, and how many have one scale; 0: a column has one."""

SMALL = Decoder(width=64, heads=4, layers=2, words=500, past=8)
"""What `--tiny` measures, to see that it works."""


@attrs.frozen
class Row:
    """A form of the weights."""

    name: str
    tokens: float
    """Our tokens per second."""
    memory: float
    """The bytes of weights that our kernels hold, over those of the file."""
    ratios: Mapping[str, Ratio | str]
    """Our time over each peer's, or why it has none."""
    difference: float
    """The largest difference to the answer of float32 arithmetic on the same weights."""


def decode(threads: Sequence[int], budget: float, tiny: bool) -> None:
    """A table for each number of threads."""
    print(f"{processor()} ({machine_name()}), {'a small model' if tiny else 'GPT-2, 124 million weights'}")
    for count in threads:
        heads = " | ".join(f"/ {peer}" for peer in PEERS)
        print(f"\n**{count} thread{'s' * (count > 1)}**\n\n| weights | tokens/s | memory | {heads} | difference |")
        print(f"|---|---|---|{'---|' * len(PEERS)}---|")
        for bits, block in FORMS[1:2] if tiny else FORMS:
            print(line(measured(SMALL if tiny else Decoder(), bits, block, count, budget)), flush=True)


def measured(sizes: Decoder, bits: int, block: int, threads: int, budget: float) -> Row:
    """The engines in turn. The peers' files have a second table, of float32, in place of the one that Partita shares."""
    graph = narrow(sizes.graph(), bits, block)
    own = with_wide_tables(narrow(attrs.evolve(sizes, tied=False).graph(), bits, block))
    inputs = example(graph)
    model = pt.compile(graph, "cpu", {"NUM_THREADS": threads})
    calls: dict[str, Callable[[], object]] = {"partita": partial(model, inputs)}
    ratios: dict[str, Ratio | str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for peer, (load, changed) in PEERS.items():
            if changed is in_blocks and not block:
                ratios[peer] = "–"
                continue
            file = Model("gpt2", 1, Path(folder) / f"{len(calls)}.onnx")
            pt.save(changed(own), file.path)
            calls[peer] = partial(load(file, threads), inputs)
            calls[peer]()
    clock = processor_clocked if threads == 1 else clocked
    times = interleaved({name: clock(call) for name, call in calls.items()}, budget)
    ratios |= {peer: ratio([times["partita"]], [times[peer]]) for peer in calls if peer != "partita"}
    held = sum(array.nbytes for unit in model.units for array in unit.compiled.export_weights())
    name = f"int{bits}, {f'blocks of {block}' if block else 'columns'}"
    off = distance(model(inputs)[0], in_float32(graph, inputs))
    return Row(name, 1 / summary([times["partita"]]).median, held / stored(graph), ratios, off)


def example(graph: pt.Graph) -> dict[str, np.ndarray]:
    """A token, its position, and a past."""
    random, inputs = np.random.default_rng(0), {}
    for node in graph.inputs:
        kind = node.output_types[0]
        assert isinstance(kind, pt.TensorType) and kind.shape is not None
        shape = tuple(int(size or 0) for size in kind.shape)
        inputs[node.name] = random.integers(0, 100, shape) if kind.dtype == "int64" else random.standard_normal(shape, np.float32)
    return inputs


def stored(graph: pt.Graph) -> float:
    """Bytes of the constants as a file holds them: two half bytes in one."""
    arrays = [node.value for node in graph.nodes if node.value is not None]
    return sum(array.nbytes / (2 if array.dtype.name == "int4" else 1) for array in arrays)


def in_float32(graph: pt.Graph, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """The scores with the weights as float32."""
    wide = pt.apply_pass(graph, "FoldConstants", limit=1 << 30, growth=1 << 30)
    scores: np.ndarray = pt.compile(wide, "cpu")(dict(inputs))[0]
    return scores


def _as_it_is(graph: pt.Graph) -> pt.Graph:
    return graph


PEERS = {
    "onnxruntime": (onnxruntime, _as_it_is),
    "onnxruntime, MatMulNBits": (onnxruntime, in_blocks),
    "openvino": (openvino, _as_it_is),
}
"""By peer, what loads a file, and what is written into it."""


def line(row: Row) -> str:
    """A row of the table."""
    ratios = [str(row.ratios[peer]) for peer in PEERS]
    return f"| {' | '.join([row.name, f'{row.tokens:.0f}', f'{row.memory:.3f}', *ratios, f'{row.difference:.0e}'])} |"
