"""Code for Arm, compiled here and run in qemu's user emulation, which has each processor's instructions and no others.

    python -m tests.accelerators.tvm.arm make FOLDER ARCH [sample | nodes[:EVERY] | MODEL | int8:MODEL ...]    compiles here
    build/arm/bin/python-arm -m tests.accelerators.tvm.arm check FOLDER      runs there, and compares
    build/arm/bin/python-arm -m tests.accelerators.tvm.arm package           the package itself there, with its compiler
    python -m tests.accelerators.tvm.arm tiles                               the table of docs/arm.md

`.ci/arm` makes build/arm, an arm64 Python. The emulated process has no compiler."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import numpy as np

import partita as pt
from partita.graph.types import Array, dtype_name, numpy_dtype

PYTHON = Path(__file__).parents[3] / "build/arm/bin/python-arm"

EMULATOR, COMPILER = "qemu-aarch64-static", "aarch64-linux-gnu-gcc"

LIMIT = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Largest error, relative to the largest element that is expected; integers are exact."""

Case = tuple[pt.Graph, list[Array], list[Array] | None]
"""A graph, its inputs, and what is expected; None: what the device `reference` computes."""


def why_not() -> str | None:
    """Why kernels for Arm cannot be run here; None if they can."""
    missing = [name for name in (EMULATOR, COMPILER) if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} here: `make check-arm` installs them" if missing else None


def run_kernel(code: bytes, name: str, arch: str, arrays: Sequence[Array], folder: Path) -> subprocess.CompletedProcess[bytes]:
    """Runs a kernel of an object file on a processor; the last of the arrays becomes its result."""
    files = [folder / f"{i}.bin" for i in range(len(arrays))]
    for file, array in zip(files, arrays, strict=True):
        file.write_bytes(np.ascontiguousarray(array).tobytes())
    (folder / "kernel.o").write_bytes(code)
    program, source = folder / "main", Path(__file__).with_name("arm.c")
    command = [COMPILER, "-O1", "-static", f"-DKERNEL=__tvm_ffi_{name}", source, folder / "kernel.o", "-lm", "-o", program]
    subprocess.run(command, check=True)
    cpu = "max" if arch == "neoverse-v1" else arch  # older emulators do not know it
    done = subprocess.run([EMULATOR, "-cpu", cpu, program, *files], capture_output=True, check=False)
    arrays[-1][...] = np.frombuffer(files[-1].read_bytes(), arrays[-1].dtype).reshape(arrays[-1].shape)
    return done


# -- whole graphs ------------------------------------------------------------------------------------------


def cases(what: str) -> Iterator[tuple[str, Case]]:
    """The graphs of this name: one for every kind of kernel, ONNX's node tests or every nth, or a model, quantized or not.
    What a quantized one should compute is what it computes here: its sums are exact everywhere. For other models onnxruntime
    says it, which takes less time than the reference."""
    if what == "sample":
        yield from _sample()
    elif what.startswith("nodes"):
        yield from _nodes(int(what.partition(":")[2] or 1))
    elif what.startswith("int8:"):
        from tests.accelerators.tvm.test_quantized_zoo import logits

        with tempfile.TemporaryDirectory() as folder:
            graph, given = logits(what.removeprefix("int8:"), Path(folder))
            yield what, (graph, given, [np.asarray(value) for value in pt.compile(graph, "cpu")(*given)])
    else:
        graph = pt.load(what)
        given = inputs(graph, least=0, most=2)
        other = "onnxruntime" if find_spec("onnxruntime") else "reference"
        yield what, (graph, given, [np.asarray(value) for value in pt.compile(graph, other)(*given)])


def _sample() -> Iterator[tuple[str, Case]]:
    from tests.accelerators.tvm.kernels import test_golden, test_quantized_products

    random = np.random.default_rng(0)

    def weights(*shape: int, dtype: str = "float32") -> pt.Node:
        return pt.constant(random.standard_normal(shape).astype(numpy_dtype(dtype)))

    with mock.patch.object(test_golden, "weights", weights):
        graphs = {kind: pt.Graph([make()]) for kind, make in test_golden.GRAPHS.items()}
    graphs |= {f"bytes, {kind}": layer.graph() for kind, layer in test_quantized_products.LAYERS.items()}
    w, r = (pt.constant(random.standard_normal(shape).astype("float32")) for shape in ((1, 64, 12), (1, 64, 16)))
    graphs["recurrent"] = pt.Graph([pt.op("LSTM", pt.variable("x", "float32", (5, 3, 12)), w, r, hidden_size=16)[0]])
    for kind, graph in graphs.items():
        yield kind, (graph, inputs(graph), None)


def _nodes(every: int) -> Iterator[tuple[str, Case]]:
    from tests.accelerators.tvm import node_cases
    from tests.numerics.driver import from_proto

    for case in node_cases.cases()[::every]:
        given, wanted = ([from_proto(value) for value in values] for values in case.data_sets[0])
        if all(isinstance(value, np.ndarray) for value in (*given, *wanted)):
            inputs = zip(case.model.graph.input, given, strict=False)
            shapes = {value.name: array.shape for value, array in inputs if value.type.HasField("tensor_type")}
            # ONNX writes some results by hand, with four decimals: the reference has all of them.
            by_hand = any(array.dtype == np.float32 and np.array_equal(array, array.round(4)) for array in wanted)
            yield case.name, (pt.load(case.model, shapes=shapes), given, None if by_hand else wanted)


def inputs(graph: pt.Graph, least: int = 1, most: int = 100, sizes: Mapping[str, int] | None = None) -> list[Array]:
    """Drawn inputs: integers from `least` to less than `most`; `sizes` are those of symbols."""
    random, arrays = np.random.default_rng(1), list[Array]()
    for node in graph.inputs:
        value_type: Any = node[0].type
        dtype = numpy_dtype(value_type.dtype)
        shape = tuple(size if isinstance(size, int) else (sizes or {})[size] for size in value_type.shape)
        if least and value_type.dtype == "int64" and len(shape) == 2:  # where something is scattered to
            arrays.append(random.permutation(8)[: shape[0], None].repeat(shape[1], 1))
        elif dtype.kind in "iu":
            arrays.append(random.integers(least, most, shape).astype(dtype))
        else:
            arrays.append(random.standard_normal(shape).astype(dtype))
    return arrays


def make(folder: Path, arch: str, names: Sequence[str]) -> None:
    """Compiles the graphs of these names for a processor; those that `cpu` refuses are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, saved, start, outcomes = [], dict[str, Array](), perf_counter(), Counter[str]()
    for kind, (graph, given, wanted) in (case for name in names for case in cases(name)):
        number = len(rows)
        try:
            pt.compile(graph, "cpu", config={"ARCH": arch}).export(folder / f"{number}.partita")
        except pt.PartitaError as error:
            outcomes[f"refused: {error.cause}"[:60]] += 1
            continue
        every = [*given, *(np.asarray(value) for value in wanted or pt.compile(graph, "reference")(*given))]
        saved |= {f"{number}_{i}": np.frombuffer(array.tobytes(), np.uint8) for i, array in enumerate(every)}
        rows.append([kind, len(given), [[dtype_name(array.dtype), array.shape] for array in every]])
    np.savez(folder / "arrays.npz", **saved)  # type: ignore[arg-type]
    (folder / "rows.json").write_text(json.dumps(rows))
    print(f"{len(rows)} graphs compiled for {arch} in {perf_counter() - start:.0f} s; {sum(outcomes.values())} refused")


def check(folder: Path) -> int:
    """Runs the graphs of a folder; the number of those whose results are wrong."""
    start, wrong = perf_counter(), list[str]()
    rows, saved = json.loads((folder / "rows.json").read_text()), np.load(folder / "arrays.npz")
    for number, (kind, count, types) in enumerate(rows):
        arrays = [saved[f"{number}_{i}"].view(numpy_dtype(dtype)).reshape(shape) for i, (dtype, shape) in enumerate(types)]
        try:
            results = pt.import_model(folder / f"{number}.partita")(*arrays[:count])
            problems = [problem(result, expected) for result, expected in zip(results, arrays[count:], strict=True)]
        except pt.PartitaError as error:
            problems = [error.cause]
        if any(problems):
            wrong.append(kind)
            print(f"{kind}: {', '.join(filter(None, problems))}")
    print(f"{len(rows)} graphs run, {len(wrong)} wrong, {perf_counter() - start:.0f} s; compiler loaded: {'tvm' in sys.modules}")
    return len(wrong)


def problem(result: Any, expected: Array) -> str:
    """The difference between a result and what is expected; empty if there is none."""
    array = np.asarray(result)
    if array.dtype != expected.dtype or array.shape != expected.shape:
        return f"{array.dtype}{array.shape} instead of {expected.dtype}{expected.shape}"
    if dtype_name(array.dtype) not in LIMIT:
        return "" if np.array_equal(array, expected, equal_nan=array.dtype.kind in "fc") else "not equal"
    a, b = array.astype("float64"), expected.astype("float64")
    finite = np.isfinite(b)
    limit = LIMIT[dtype_name(array.dtype)] * max(1.0, float(np.abs(b[finite]).max(initial=0)))
    off = float(np.abs(a[finite] - b[finite]).max(initial=0))
    same = np.array_equal(a[~finite], b[~finite], equal_nan=True)
    return "" if off <= limit and same else f"off by {off:.1e}"


def package() -> None:
    """Partitions a graph, compiles it with and without the partition, runs, exports and imports both."""
    first, second = (pt.constant(np.random.default_rng(i).standard_normal((24, 24)).astype("float32")) for i in range(2))
    x = pt.variable("x", "float32", (5, 24))
    graph = pt.Graph([pt.op("Softmax", pt.op("MatMul", pt.op("Relu", pt.op("MatMul", x, first)), second))])
    products = pt.PatternProperty(pt.Pattern("MatMul", "Relu?"))
    given = np.random.default_rng(2).standard_normal((5, 24)).astype("float32")
    (wanted,) = pt.compile(graph, "reference")(given)
    with tempfile.TemporaryDirectory() as folder:
        for source in (graph, pt.apply_pass(graph, "PartitionGraph", subgraph_property=products)):
            model = pt.compile(source, "cpu")
            model.export(Path(folder) / "net.partita")
            for one in (model, pt.import_model(Path(folder) / "net.partita")):
                np.testing.assert_allclose(one(given)[0], wanted, rtol=1e-5, atol=1e-6)
            machine = model.kernels()[0].machine
            print(f"{len(source.nodes)} nodes: right on {platform.machine()} by {' '.join(map(str, machine.instructions))}")


# -- tiles -------------------------------------------------------------------------------------------------


PIPES = {"cortex-a72": 2, "neoverse-n1": 2, "neoverse-v1": 4}
"""Vector instructions that start in one cycle, by Arm's guides."""

LOADS = 2
"""Loads that start in one cycle."""

MCA, ROUNDS = ("llvm-mca-19", "llvm-mca"), 200
"""LLVM's simulator of pipelines (Debian: llvm-19), and how often it runs a loop."""

PRODUCTS = {
    "fmla": 4, "fmlal": 4, "mla": 4, "smlal": 4, "smlal2": 4, "sdot": 16, "usdot": 16, "usmmla": 32, "bfdot": 8, "bfmmla": 16,
}
"""Products of the instructions that multiply."""


def tiles() -> Iterator[str]:
    """The rows of a table: the innermost loop of a kernel for each element type, in its machine code."""
    for arch, pipes in PIPES.items():
        for kind, (graph, precision) in _kernels().items():
            model = pt.compile(graph, "cpu", config={"ARCH": arch, "NUM_THREADS": 1, "PRECISION": precision})
            code = "".join(kernel.assembly for kernel in model.kernels())
            loops = re.split(r"^(?:\.LBB\w+:|\tb\.\w+\t.*|\tcbn?z\t.*|\tb\t.*)", code, flags=re.MULTILINE)
            loop = max(loops, key=lambda loop: _counted(loop)[1])
            yield f"| `{arch}` | {kind} | {_row(_counted(loop), pipes, _simulated(loop, arch))} |"


def _kernels() -> dict[str, tuple[pt.Graph, str]]:
    """Graphs of one kernel that multiplies, and the precision for each."""
    random = np.random.default_rng(0)

    def weight(*shape: int, dtype: str = "float32") -> pt.Node:
        return pt.constant((random.standard_normal(shape) * 50).astype(dtype))

    def product(dtype: str) -> pt.Graph:
        return pt.Graph([pt.op("MatMul", pt.variable("x", dtype, (SIDE, SIDE)), weight(SIDE, SIDE, dtype=dtype))])

    def integers(op: str, given: tuple[int, ...], *shape: int, **attrs: Any) -> pt.Graph:
        point = [pt.constant(np.array(value, dtype)) for value, dtype in ((0.1, "float32"), (7, "uint8"), (0, "int8"))]
        sides = (pt.variable("x", "uint8", given), point[1]), (weight(*shape, dtype="int8"), point[2])
        widened = [pt.op("DequantizeLinear", side, point[0], zero) for side, zero in sides]
        return pt.Graph([pt.op("QuantizeLinear", pt.op(op, *widened, **attrs), point[0], point[1])])

    image = (1, 64, 56, 56)
    window = pt.Graph([pt.op("Conv", pt.variable("x", "float32", image), weight(64, 64, 3, 3), pads=[1, 1, 1, 1])])
    query, key, value = (pt.variable(name, "float32", (8, 256, 64)) for name in "qkv")
    weights = pt.op("Softmax", pt.op("MatMul", query, pt.op("Transpose", key, perm=[0, 2, 1])), axis=-1)
    attention = pt.Graph([pt.op("MatMul", weights, value)])
    return {
        "product, float32": (product("float32"), "f32"),
        "product, float16": (product("float16"), "f32"),
        "product, bfloat16": (product("float32"), "bf16"),
        "product, int8": (integers("MatMul", (SIDE, SIDE), SIDE, SIDE), "f32"),
        "3 x 3 convolution, float32": (window, "f32"),
        "3 x 3 convolution, bfloat16": (window, "bf16"),
        "3 x 3 convolution, int8": (integers("Conv", image, 64, 64, 3, 3, pads=[1, 1, 1, 1]), "f32"),
        "attention, float32": (attention, "f32"),
        "attention, bfloat16": (attention, "bf16"),
    }


def _counted(loop: str) -> tuple[str, int, int, int]:
    """Of a piece of code the instruction that multiplies most, and the numbers of products, vector instructions and loads."""
    lines = re.findall(r"^\t(\w+)\s+(.*)$", loop, re.MULTILINE)
    used = Counter(name for name, operands in lines if name in PRODUCTS and re.match(r"v\d", operands))
    loads = sum(2 if name == "ldp" else 1 for name, _ in lines if name.startswith("ld"))
    # What copies from an integer's register starts elsewhere.
    own = [name for name, operands in lines if re.match(r"[vqds]\d", operands) and not re.search(r"\b[wx]\d", operands)]
    vectors = sum(1 for name in own if not name.startswith(("ld", "st")))
    products = sum(PRODUCTS[name] * count for name, count in used.items())
    return (used.most_common(1) or [("", 0)])[0][0], products, vectors, loads


def _simulated(loop: str, arch: str) -> float | None:
    """Cycles of the loop by llvm-mca, which waits for operands; None without it."""
    program = next(filter(None, map(shutil.which, MCA)), None)
    if program is None:
        return None
    code = "\n".join(re.findall(r"^\t[a-z].*$", loop, re.MULTILINE))
    command = [program, "--mtriple=aarch64-linux-gnu", f"--mcpu={arch}", f"--iterations={ROUNDS}", "--instruction-info=0"]
    report = subprocess.run(command, input=code, capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"^Total Cycles: +(\d+)$", report, re.MULTILINE)[0]) / ROUNDS


def _row(counts: tuple[str, int, int, int], pipes: int, simulated: float | None) -> str:
    name, products, vectors, loads = counts
    least = max(vectors / pipes, loads / LOADS)
    both = [f"{cycles:.1f} | {products / cycles:.1f}" if cycles else " | " for cycles in (least, simulated)]
    return f"{name} | {products} | {vectors} | {loads} | {' | '.join(both)}"


SIDE = 512

if __name__ == "__main__":
    if sys.argv[1] == "tiles":
        print("\n".join(tiles()))
    elif sys.argv[1] == "package":
        package()
    elif sys.argv[1] == "make":
        make(Path(sys.argv[2]), sys.argv[3], sys.argv[4:] or ["sample"])
    else:
        sys.exit(min(check(Path(sys.argv[2])), 100))
