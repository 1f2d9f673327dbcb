"""Everything that reads a file: real files for it, how they are made wrong, and what reading one means."""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import partita as pt
from partita.graph.graph import Graph
from partita.graph.readers.text import parse
from partita.graph.verify import verify
from tests.fuzz.files.models import (
    code_packages,
    read_and_compile,
    read_and_run,
    read_code,
    read_typed,
    signed_by_another,
    unpacked,
)
from tests.fuzz.files.mutations import bytes_changed, json_changed, message_changed, text_changed
from tests.fuzz.files.states import (
    change_page,
    change_session,
    lowered,
    page_samples,
    read_page,
    read_precision,
    read_session,
    session_samples,
)

Files = Mapping[str, bytes]
"""Contents by file name."""


@attrs.frozen
class Reader:
    """One way in."""

    samples: Callable[[], list[Files]]
    """Files that are read."""
    change: Callable[[Files, random.Random], Files]
    """Makes them wrong."""
    read: Callable[[Path], None]
    """Reads them from a folder: raises a PartitaError, or holds that what was read is good."""
    compiles: bool = False
    """Does it compile what it cannot read?"""


READERS: dict[str, Reader] = {}
"""The readers, each under its name."""


def mutated(name: str, seed: int) -> Files:
    """The files of a seed."""
    rng = random.Random(f"{name} {seed}")
    reader = READERS[name]
    return reader.change(rng.choice(samples_of(name)), rng)


@cache
def samples_of(name: str) -> list[Files]:
    """A reader's real files."""
    return READERS[name].samples()


def one_of(*changes: Callable[[bytes, random.Random], bytes]) -> Callable[[Files, random.Random], Files]:
    """Changes one of the files in one of these ways."""

    def change(files: Files, rng: random.Random) -> Files:
        name = rng.choice(sorted(files))
        return {**files, name: rng.choice(changes)(files[name], rng)}

    return change


def good(graph: Graph, verified: bool = True) -> None:
    """A graph that was read is well formed, if its form can only say such, prints, and reads back as itself."""
    if verified:
        verify(graph)
    text = str(graph)
    if len(text) < 100_000:
        assert str(parse(text)) == text, "the text form reads back as another graph"


# -- ONNX ----------------------------------------------------------------------------------------------


def onnx_message(data: bytes, rng: random.Random) -> bytes:
    """Fields of an ONNX model."""
    import onnx

    return message_changed(data, rng, onnx.ModelProto)


def onnx_samples() -> list[Files]:
    """ONNX's node tests, and models with functions, control flow and calls."""
    from partita.graph.readers import load
    from partita.graph.writers.onnx import to_model
    from tests.onnx.models import FUNCTIONS, LINE, NESTED, model
    from tests.onnx.node_roundtrip import node_cases
    from tests.onnx.test_writer import calls

    node = [case.model.SerializeToString() for case in node_cases()]
    own = [model(text) for text in (LINE, NESTED, FUNCTIONS)]
    own += [to_model(graph) for graph in (calls(), *map(load, own))]
    return [
        {"m.onnx": data}
        for data in [d for d in node if len(d) < 4000] + [proto.SerializeToString() for proto in own] * 30
    ]


def read_onnx(folder: Path) -> None:
    """Load, write, load again."""
    from partita.graph.writers.onnx import to_model

    graph = pt.load(folder / "m.onnx")
    good(graph)
    verify(pt.load(to_model(graph)))


READERS["onnx"] = Reader(onnx_samples, one_of(bytes_changed, onnx_message, onnx_message), read_onnx)
READERS["typed"] = Reader(onnx_samples, one_of(onnx_message), read_typed)
READERS["run"] = Reader(onnx_samples, one_of(onnx_message), read_and_run, compiles=True)
READERS["compiled"] = Reader(onnx_samples, one_of(onnx_message), read_and_compile, compiles=True)


def external_samples() -> list[Files]:
    """A model whose weights are in a file beside it."""
    x = pt.variable("x", "float32", (2, 300))
    weights = pt.constant(np.arange(90_000, dtype="float32").reshape(300, 300), name="w")
    graph = pt.Graph([pt.op("MatMul", x, weights, name="y")], name="net")
    with tempfile.TemporaryDirectory() as folder:
        pt.save(graph, Path(folder) / "m.onnx", external=True)
        return [{path.name: path.read_bytes() for path in Path(folder).iterdir()}]


def change_external(files: Files, rng: random.Random) -> Files:
    """The model's fields mostly, which name the file; the data are any bytes."""
    if rng.random() < 0.1:
        return one_of(bytes_changed)(files, rng)
    return {**files, "m.onnx": rng.choice((bytes_changed, onnx_message))(files["m.onnx"], rng)}


READERS["external"] = Reader(
    external_samples, change_external, lambda folder: good(pt.load(folder / "m.onnx"))
)


# -- MXNet and NNVM --------------------------------------------------------------------------------------


def mxnet_samples() -> list[Files]:
    """Symbols with what MXNet calls their parameters."""
    from tests.mxnet.data import FOLDER, cases

    many = {
        "m-symbol.json": (FOLDER / "many_ops-symbol.json").read_bytes(),
        "m.params": (FOLDER / "many_ops-0000.params").read_bytes(),
    }
    small = []
    for case in cases().values():
        saved = io.BytesIO()
        np.savez(saved, **case.params)
        small.append(
            {
                "m-symbol.json": json.dumps(case.symbol).encode(),
                "m.params": saved.getvalue() if case.params else b"",
            }
        )
    return [many] * (len(small) // 4) + small


def read_mxnet(folder: Path) -> None:
    """A symbol with its parameters."""
    params = folder / "m.params"
    good(pt.load(folder / "m-symbol.json", params=params if params.stat().st_size else None))


def change_symbol(files: Files, rng: random.Random) -> Files:
    """The symbol alone."""
    return {
        **files,
        "m-symbol.json": rng.choice((json_changed, json_changed, bytes_changed))(files["m-symbol.json"], rng),
    }


def read_parameters(folder: Path) -> None:
    """Parameters alone."""
    from partita.graph.readers.mxnet import read_params

    for array in read_params(folder / "m.params").values():
        assert isinstance(array, np.ndarray)


def parameter_samples() -> list[Files]:
    """Files of parameters: MXNet's own, and numpy's."""
    return [{"m.params": files["m.params"]} for files in mxnet_samples() if files["m.params"]]


READERS["mxnet"] = Reader(mxnet_samples, change_symbol, read_mxnet)
READERS["params"] = Reader(parameter_samples, one_of(bytes_changed), read_parameters)


@cache
def graphs() -> list[Graph]:
    """Small graphs with all that a form has to hold."""
    from tests.nnvm.test_nnvm_json import NET
    from tests.text.test_text_form import NET as LARGER

    return [parse(NET), parse(LARGER)]


def nnvm_samples() -> list[Files]:
    """Ours, and as NNVM writes them."""
    from partita.graph.writers.nnvm import to_nnvm_json
    from tests.nnvm.test_nnvm_json import SYMBOL

    return [{"g.json": text.encode()} for text in (*map(to_nnvm_json, graphs()), json.dumps(SYMBOL))]


def read_nnvm(folder: Path) -> None:
    """NNVM's JSON."""
    from partita.graph.readers.nnvm import from_nnvm_json

    good(from_nnvm_json((folder / "g.json").read_bytes()), verified=False)


READERS["nnvm"] = Reader(nnvm_samples, one_of(json_changed, json_changed, bytes_changed), read_nnvm)


# -- text form and plans ---------------------------------------------------------------------------------


def read_text(folder: Path) -> None:
    """The text form."""
    good(parse((folder / "g.txt").read_text("utf-8", "surrogateescape")), verified=False)


def text_samples() -> list[Files]:
    """Small graphs as text."""
    return [{"g.txt": str(graph).encode()} for graph in graphs()]


READERS["text"] = Reader(text_samples, one_of(text_changed, text_changed, bytes_changed), read_text)


@cache
def planned() -> tuple[Graph, str]:
    """A graph and a plan for it."""
    from tests.graphs.networks import small_net

    graph = small_net()
    return graph, pt.plan(
        graph, subgraph_property=pt.PatternProperty(pt.ContainOpSelector({"Conv", "Relu", "MatMul"}))
    ).to_json()


def read_plan(folder: Path) -> None:
    """A plan that is read is applied too."""
    plan = pt.Plan.from_json((folder / "plan.json").read_bytes())
    verify(plan.apply(planned()[0], pt.PatternProperty(pt.ContainOpSelector({"Conv", "Relu", "MatMul"}))))


READERS["plan"] = Reader(
    lambda: [{"plan.json": planned()[1].encode()}],
    one_of(json_changed, json_changed, bytes_changed),
    read_plan,
)


READERS["precision"] = Reader(
    lambda: [{"plan.json": lowered()[1].encode()}],
    one_of(json_changed, json_changed, bytes_changed),
    read_precision,
)
READERS["page"] = Reader(page_samples, change_page, read_page)
READERS["session"] = Reader(session_samples, change_session, read_session)


# -- packages and the cache ------------------------------------------------------------------------------


def package_samples() -> list[Files]:
    """Exported models that hold no machine code."""
    from tests.graphs.networks import dynamic_net, small_net

    with tempfile.TemporaryDirectory() as folder:
        listed = []
        for graph in (small_net(), dynamic_net()):
            path = Path(folder) / "m.partita"
            with pt.compile(graph, "reference") as model:
                model.export(path)
            listed.append({"m.partita": path.read_bytes()})
    return listed


def change_package(files: Files, rng: random.Random) -> Files:
    """The package with changed bytes, or with changed members, sealed anew so that the reader gets as far as them."""
    data = files["m.partita"]
    if rng.random() < 0.1:
        return {"m.partita": bytes_changed(data, rng)}
    return {"m.partita": repacked(data, rng)}


def repacked(data: bytes, rng: random.Random) -> bytes:
    """The package with one member or its manifest changed, under a seal that is right."""
    from partita.accelerators.runtime.package.container import PackageWriter

    content, members = _unpacked(data)
    target = rng.choice((*members, "manifest", "manifest", "manifest"))
    if target == "manifest":
        content = json.loads(json_changed(json.dumps(content).encode(), rng))
    else:
        by_end: dict[str, Any] = {".json": json_changed, ".onnx": onnx_message}
        change = by_end.get(Path(target).suffix, bytes_changed)
        members = {**members, target: change(members[target], rng)}
    file = io.BytesIO()
    writer = PackageWriter(file)
    for name, body in members.items():
        writer.add(name, body)
    extra = content if isinstance(content, dict) else {"units": content}
    writer.finish({str(key): value for key, value in extra.items() if key != "members"}, None)
    return file.getvalue()


@cache
def _unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("manifest.json")), members


def read_package(folder: Path) -> None:
    """An import, and a call with what its inputs ask for."""
    with pt.import_model(folder / "m.partita") as model:
        feeds = []
        for node in model.graph.inputs:
            kind = node[0].type
            shape = [dim if isinstance(dim, int) else 2 for dim in getattr(kind, "shape", None) or ()]
            if int(np.prod([float(dim) for dim in shape])) > 1 << 20:
                return
            feeds.append(
                np.zeros(
                    shape,
                    getattr(kind, "dtype", "float32") if getattr(kind, "dtype", "") != "string" else object,
                )
            )
        model(*feeds)


READERS["package"] = Reader(package_samples, change_package, read_package)


def change_code(files: Files, rng: random.Random) -> Files:
    """The bytes of a package with machine code; or one that is signed, changed anywhere, and signed anew by somebody else."""
    ((name, data),) = files.items()
    if name.startswith("sealed") or rng.random() < 0.5:
        return {name: bytes_changed(data, rng)}
    members = unpacked(data)
    content = json.loads(members.pop("manifest.json"))
    target = rng.choice(sorted(members))
    members[target] = bytes_changed(members[target], rng)
    return {name: signed_by_another(members, content, rng.choice((None, b"another key")))}


READERS["code"] = Reader(lambda: list(code_packages()), change_code, read_code)


@cache
def cached() -> tuple[Graph, Any, Any]:
    """A graph that `cpu` compiles, what it is run with, and what comes of it."""
    x = pt.variable("x", "float32", (3, 4))
    weights = pt.constant(np.arange(512, dtype="float32").reshape(4, 128) / 512, name="w")
    graph = pt.Graph([pt.op("Relu", pt.op("MatMul", x, weights, name="m"), name="r")], name="cached")
    given = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
    with pt.compile(graph, "cpu", config={"CACHE_DIR": "off"}) as model:
        return graph, given, model(given)[0]


def cache_samples() -> list[Files]:
    """A cache folder with one entry."""
    with tempfile.TemporaryDirectory() as folder:
        pt.compile(cached()[0], "cpu", config={"CACHE_DIR": folder}).close()
        parts = [path for path in Path(folder).rglob("*") if path.is_file() and "locks" not in path.parts]
        return [{str(path.relative_to(folder)): path.read_bytes() for path in parts}]


def change_cache(files: Files, rng: random.Random) -> Files:
    """Bytes of an entry; or its words, under a digest that is right."""
    name = rng.choice(sorted(files))
    if name.startswith("entries") and rng.random() < 0.6:
        return {**files, name: resealed(files[name], rng)}
    return {**files, name: bytes_changed(files[name], rng)}


def resealed(entry: bytes, rng: random.Random) -> bytes:
    """An entry with other words; its code is as it was."""
    import hashlib

    from partita.accelerators.store.store import MAGIC

    start = len(MAGIC) + 40
    size = int.from_bytes(entry[start - 8 : start], "little")
    words = json_changed(entry[start : start + size], rng)
    return (
        MAGIC
        + hashlib.sha256(words).digest()
        + len(words).to_bytes(8, "little")
        + words
        + entry[start + size :]
    )


def read_cache(folder: Path) -> None:
    """Compiling through the cache gives the right numbers, whatever the folder holds."""
    graph, given, wanted = cached()
    with pt.compile(graph, "cpu", config={"CACHE_DIR": str(folder)}) as model:
        np.testing.assert_array_equal(model(given)[0], wanted)


READERS["cache"] = Reader(cache_samples, change_cache, read_cache, compiles=True)


# -- arrays and images -----------------------------------------------------------------------------------

FLOATS = pt.variable("x", "float32", (1, 3, 8, 8))[0].type


def array_samples(archive: bool) -> list[Files]:
    """Arrays of several types, one for a file or several."""
    listed = []
    for array in (
        np.zeros((2, 3), "float32"),
        np.arange(5),
        np.zeros((1, 3, 8, 8), "float16"),
        np.array(True),
        np.zeros(3, "S4"),
    ):
        file = io.BytesIO()
        if archive:
            np.savez_compressed(file, x=array) if array.ndim else np.savez(file, x=array, y=array)
        else:
            np.save(file, array)
        listed.append({"a.npz" if archive else "a.npy": file.getvalue()})
    return listed


def read_arrays(folder: Path, name: str = "a.npy") -> None:
    """Read an array as the command line reads a model's input."""
    from partita.cli.inputs import read_inputs

    for array in read_inputs([str(folder / name)], [("x", FLOATS)], "none").values():
        assert isinstance(array, np.ndarray)


READERS["npy"] = Reader(lambda: array_samples(False), one_of(bytes_changed, text_changed), read_arrays)
READERS["npz"] = Reader(
    lambda: array_samples(True), one_of(bytes_changed), partial(read_arrays, name="a.npz")
)

IMAGES = ("png", "jpeg", "bmp", "gif", "tiff", "webp")


def image_samples() -> list[Files]:
    """A small picture in each format."""
    from PIL import Image

    listed = []
    for mode in ("RGB", "L"):
        picture = Image.fromarray((np.arange(16 * 12 * 3) % 251).astype("uint8").reshape(16, 12, 3)).convert(
            mode
        )
        for kind in IMAGES:
            file = io.BytesIO()
            picture.save(file, kind)
            listed.append({f"a.{kind}": file.getvalue()})
    return listed


def read_picture(folder: Path) -> None:
    """Read an array as the command line reads a model's input."""
    from partita.cli.inputs import read_inputs

    (path,) = folder.iterdir()
    (array,) = read_inputs([str(path)], [("x", FLOATS)], "imagenet").values()
    assert array.shape == (1, 3, 8, 8)


READERS["image"] = Reader(image_samples, one_of(bytes_changed), read_picture)
