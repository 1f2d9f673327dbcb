"""What the project writes for itself and reads back: saved conversations, plans of precision, report pages."""

from __future__ import annotations

import io
import random
import tempfile
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

import partita as pt
from partita.graph.verify import verify
from partita.page import reading
from partita.page.differences import compared
from tests.fuzz.files.mutations import bytes_changed, json_changed, text_changed

Files = Mapping[str, bytes]

TOKEN = np.zeros((1, 1), np.int64)


@cache
def decoder() -> pt.CompiledModel:
    """A model with caches that grow."""
    ids = pt.variable("ids", "int64", ("batch", "sequence"))
    past = [pt.variable(name, "float32", ("batch", 2, "past", 4)) for name in ("keys", "values")]
    x = pt.op("Gather", pt.constant(np.linspace(-1, 1, 80, dtype=np.float32).reshape(10, 8)), ids)
    heads = {"q_num_heads": 2, "kv_num_heads": 2}
    seen = pt.op("Attention", x, x, x, None, *past, **heads, is_causal=1, n_outputs=3, opset=24)
    names = ["said", "new_keys", "new_values"]
    return pt.compile(pt.Graph(list(seen.outputs), [ids, *past], "talk", {"": 24}, output_names=names), "reference")


def session_samples() -> list[Files]:
    """Conversations of none, one and three tokens, stored and compressed."""
    listed = []
    with tempfile.TemporaryDirectory() as folder:
        for tokens in (0, 1, 3, 3):
            session, path = decoder().session(), Path(folder) / "talk.npz"
            for _ in range(tokens):
                session(TOKEN)
            session.save(path)
            listed.append({"talk.npz": path.read_bytes()})
    return [*listed, {"talk.npz": rebuilt(listed[-1]["talk.npz"], {})}]


def rebuilt(archive: bytes, members: Mapping[str, bytes]) -> bytes:
    """The archive, compressed, with some members exchanged, so that its sums are right."""
    result = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, members.get(name, old.read(name)))
    return result.getvalue()


def change_session(files: Files, rng: random.Random) -> Files:
    """Bytes of the archive, or an array in it."""
    data = files["talk.npz"]
    if rng.random() < 0.3:
        return {"talk.npz": bytes_changed(data, rng)}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        name = rng.choice(archive.namelist())
        body = archive.read(name)
    head = text_changed(body[10:128], rng)[:118]
    changed = bytes_changed(body, rng) if rng.random() < 0.5 else body[:10] + head.ljust(118) + body[128:]
    return {"talk.npz": rebuilt(data, {name: changed})}


def read_session(folder: Path) -> None:
    """A conversation that is read goes on."""
    session = decoder().session().load(folder / "talk.npz")
    before = session.length
    session(TOKEN)
    assert session.length == before + 1


@cache
def lowered() -> tuple[pt.Graph, str]:
    """A graph, and a plan that computes a product of it in int8."""
    x = pt.variable("x", "float32", (2, 16))
    w = [pt.constant(np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16) * scale) for scale in (1, 2)]
    graph = pt.Graph([pt.op("MatMul", pt.op("Relu", pt.op("MatMul", x, w[0], name="first")), w[1], name="last")], name="net")
    inputs = [np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)]
    return graph, pt.choose_precision(graph, inputs, tolerance=0.1, device="reference", win="memory").to_json()


def read_precision(folder: Path) -> None:
    """A plan of precision that is read prints, writes itself, and is applied."""
    plan = pt.PrecisionPlan.from_json((folder / "plan.json").read_text("utf-8", "replace"))
    assert pt.PrecisionPlan.from_json(plan.to_json()).to_json() == plan.to_json()
    str(plan)
    verify(plan.apply(lowered()[0]))


def page_samples() -> list[Files]:
    """The data of a report page, without the page's program."""
    with tempfile.TemporaryDirectory() as folder:
        path = pt.report_page(lowered()[0], Path(folder) / "page.html")
        data = path.read_text("utf-8").partition(reading.BEGIN)[2].partition(reading.END)[0]
    return [{"page.html": (reading.BEGIN + data + reading.END).encode()}]


def change_page(files: Files, rng: random.Random) -> Files:
    """The page's bytes, or the tree of its data."""
    data = files["page.html"]
    if rng.random() < 0.2:
        return {"page.html": bytes_changed(data, rng)}
    begin, end = reading.BEGIN.encode(), reading.END.encode()
    return {"page.html": begin + json_changed(data[len(begin) : -len(end)], rng) + end}


def read_page(folder: Path) -> None:
    """A page that is read is compared with itself, and shown again."""
    scene = reading.read_page(folder / "page.html")
    compared(scene, scene).to_json()
