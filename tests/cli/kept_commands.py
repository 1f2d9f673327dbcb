"""Commands on small models: the status of each, what it prints on both streams, and sums over the files that it writes. Times are
left out.

`python -m tests.cli.kept_commands` writes the file that `test_kept_commands.py` compares with anew."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np

import partita as pt
from partita.cli.main import main
from tests.accelerators.devices.kept_runs import MODELS, devices, shortened
from tests.cli.conftest import small_graph

KEPT = Path(__file__).with_name("kept_commands.txt")

COMMANDS = {
    "look": """
        devices alpha
        devices alpha --json
        devices gamma
        devices breaks alpha
        devices alpha.1
        inspect small.onnx
        inspect small.onnx --nodes
        inspect small.onnx --nodes --json
        inspect dynamic.onnx
        inspect dynamic.onnx --json
        inspect dynamic.onnx --shape x=2,3,8,8 --nodes
        inspect dynamic.onnx --shape z=2
        inspect dynamic.onnx --shape x=2,3
        inspect dynamic.onnx --shape x=a,3,8,8
        inspect dynamic.onnx --shape x=2,3,8,8,1
        inspect branches.onnx --nodes
        inspect lists.onnx
        inspect types.onnx --nodes
        inspect empty.onnx
        inspect two.onnx
        inspect nothing.onnx
        inspect garbage.onnx
        inspect garbage.json
        inspect .
        inspect zoo:nothing
        inspect x.npy
        inspect chain.onnx --params x.npy
        inspect chain.onnx --quiet
        inspect chain.onnx -v
        inspect constants.onnx --nodes --json
        inspect plain.txt
    """,
    "partition": """
        partition chain.onnx --devices HETERO:alpha,beta
        partition chain.onnx --devices HETERO:alpha,beta --json
        partition chain.onnx --devices HETERO:alpha,beta -o out.onnx --dot a.dot --svg a.svg --plan a.json
        partition chain.onnx --select Relu,Exp
        partition chain.onnx --select Relu,Exp,Neg --json
        partition chain.onnx --select Relu,Neg --growth waves --min-size 2
        partition chain.onnx --select Relu,Neg,Abs --max-subgraphs 1
        partition chain.onnx --pattern Relu,Exp?,Neg|Abs
        partition chain.onnx --pattern Relu,,Exp
        partition chain.onnx --select Nothing
        partition chain.onnx --select Relu --growth nothing
        partition chain.onnx --devices HETERO:alpha,beta --pin a=beta --forbid Exp=alpha
        partition chain.onnx --devices HETERO:alpha,beta --pin a=gamma
        partition chain.onnx --devices HETERO:alpha,beta --pin a
        partition chain.onnx --devices HETERO:alpha,beta --select Relu
        partition chain.onnx --backend alpha
        partition chain.onnx --backend gamma
        partition branches.onnx --select If,Relu
        partition two.onnx --devices HETERO:alpha,beta -o two-out.onnx --json
        partition small.onnx --devices HETERO:alpha
        partition placed.onnx
        explain chain.onnx c --devices HETERO:alpha,beta
        explain chain.onnx c --devices HETERO:alpha,beta --json
        explain chain.onnx c --select Relu,Exp
        explain chain.onnx c --select Relu,Neg --json
        explain chain.onnx a --select Relu,Neg
        explain chain.onnx z --devices HETERO:alpha,beta
        explain chain.onnx x --devices HETERO:alpha,beta
        explain chain.onnx y --devices gamma
        explain branches.onnx p --devices HETERO:alpha,beta
    """,
    "passes": """
        passes chain.onnx
        passes small.onnx --json
        passes chain.onnx --device reference
        passes chain.onnx --device alpha
        passes two.onnx --without EliminateDead
        passes two.onnx --without Nothing
        passes two.onnx --dump dumps --verify
    """,
    "run": """
        run chain.onnx --devices HETERO:alpha,beta --profile 0
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --check
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --check --json
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --input x.npy -o out.npz
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --input x=x.npy -o out.npy
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --input z=x.npy
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --input small.npy
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --input garbage.npy
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --input xy.npz
        run two.onnx --devices HETERO:alpha,beta --profile 0 --input xz.npz -o outs.npz
        run two.onnx --devices HETERO:alpha,beta --profile 0 -o out.npy --seed 3
        run dynamic.onnx --devices HETERO:alpha,beta --profile 0 --shape x=2,3,8,8
        run dynamic.onnx --devices HETERO:alpha,beta --profile 0 --batch 3
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --config LEVEL=3
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --config alpha.LEVEL=3
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --config alpha.LEVEL
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --precision bf16
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --fail-on moved,fallback --json
        run chain.onnx --devices HETERO:alpha,beta --profile 0 --fail-on nothing
        run chain.onnx --devices HETERO:breaks,alpha,beta --profile 0 --fail-on moved --check
        run lists.onnx --devices HETERO:alpha,beta --profile 0
        run types.onnx --devices HETERO:alpha,beta --profile 0 --check
        run branches.onnx --devices HETERO:alpha,beta --profile 0 --check --input c.npz
        run indices.onnx --devices HETERO:alpha,beta --profile 0 --check
        run chain.onnx --devices gamma
        run chain.onnx --devices HETERO:alpha
        run constants.onnx --devices HETERO:alpha,beta --profile 0 --check
        run empty.onnx --devices HETERO:alpha,beta --profile 0 --check --json
        compile chain.onnx --devices reference -o chain.partita
        run chain.partita --profile 0
        run chain.partita --profile 0 --devices alpha
        compile chain.onnx --devices HETERO:alpha,beta -o c.partita
        compile chain.onnx --devices reference -o nowhere/c.partita
        inspect chain.partita
        run garbage.partita
    """,
    "compare": """
        compare chain.onnx chain.onnx --devices HETERO:alpha,beta --other-devices reference
        compare chain.onnx changed.onnx --devices HETERO:alpha,beta --other-devices alpha
        compare chain.onnx changed.onnx --devices beta --other-devices beta
        compare chain.onnx changed.onnx --devices beta --json
        compare chain.onnx changed.onnx --devices beta --outputs-only
        compare chain.onnx two.onnx --devices beta
        compare two.onnx two.onnx --devices beta --tolerance 0.5 --json
        compare chain.onnx nothing.onnx --devices beta
        compare chain.onnx changed.onnx --devices beta --tolerance 100 --input x.npy
        diagnose chain.onnx --devices beta --input x.npy
        diagnose chain.onnx --devices wrong --input x.npy
        diagnose chain.onnx --devices wrong --input x.npy --json
        diagnose chain.onnx --devices HETERO:wrong,beta --against beta
        capsule chain.onnx --subgraph 0 --devices HETERO:breaks,beta -o capsule
        capsule chain.onnx --subgraph 9 --devices beta -o other
        capsule chain.onnx --subgraph beta_0 --devices beta --anonymous --input x.npy -o hidden --json
        partition chain.onnx --devices HETERO:alpha,beta --report a.html
        partition chain.onnx --devices HETERO:beta --report b.html
        diff a.html b.html
        diff a.html b.html --json
        diff a.html a.html
        diff a.html chain.onnx
        cache ls --folder kept
        cache clear --folder kept
        cache explain --folder .
        plan --check a.json chain.onnx
        plan --check x.npy chain.onnx
    """,
}
"""Commands by subject, one a line."""

TIMES = re.compile(
    r"\b\d[\d,.]*(?:e-\d+)?(?= ?(?:µs|us|ms|s)\b)|(?<=seconds\": )[\d.e-]+|(?<=_us\": )[\d.e-]+|(?<=_ms\": )[\d.e-]+"
    r"|(?<=│) *\d+\.\d(?= *│)"
)
"""Times, whatever their unit, and cells of tables that hold some."""

FRACTION = re.compile(r"-?\d+\.\d{4,}(?:e[-+]?\d+)?")
"""Numbers whose last digits differ from one processor to the next."""

FILLED = re.compile(r"[ ─━]{2,}")
"""The widths of columns, which follow from the times in them."""


def write_models() -> None:
    """The models and the inputs of all commands, in the current folder."""
    for name, text in MODELS.items():
        graph = pt.parse(f"opset 21\n{text}")
        pt.save(graph, f"{name}.onnx")
    pt.save(pt.parse(f"opset 21\n{MODELS['chain'].replace('Neg(b)', 'Sqrt(b)')}"), "changed.onnx")
    pt.save(small_graph(), "small.onnx")
    pt.save(small_graph("N"), "dynamic.onnx")
    for name in ("garbage.onnx", "garbage.json", "garbage.npy", "garbage.partita"):
        Path(name).write_bytes(b"not what its name says")
    Path("plain.txt").write_text(str(pt.parse(f"opset 21\n{MODELS['plain']}")), "utf-8")
    x = (np.arange(64, dtype=np.float32) / 8 - 3).reshape(8, 8)
    np.save("x.npy", x)
    np.save("small.npy", x[:2])
    np.savez("xy.npz", x=x, y=x)
    np.savez("xz.npz", x=x[:2, :3], z=x[0, :3])
    np.savez("c.npz", c=np.array(True), x=x[0, :2])


def ran(line: str) -> str:
    """The status and the output of a command, and the files that it wrote."""
    before = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(shlex.split(line))
    text = f"{status}\n{out.getvalue()}\n{err.getvalue()}".replace(os.getcwd(), "")
    timeless = TIMES.sub("#", text)
    text = text if timeless == text else FILLED.sub(" ", timeless)
    text = FRACTION.sub(lambda number: str(float(f"{float(number[0]):.3g}")), text)
    files = sorted(path for path in Path().rglob("*") if path.is_file() and before.get(path) != path.read_bytes())
    return "\n".join([text.strip(), *(f"{path}: {_of_file(path)}" for path in files)])


def _of_file(path: Path) -> str:
    """A sum over a file whose text is the same each time; of arrays, their names, types and shapes."""
    if path.suffix in (".npz", ".npy"):
        loaded = np.load(path)
        arrays = [("", loaded)] if isinstance(loaded, np.ndarray) else loaded.items()
        return ", ".join(f"{name} {array.dtype}{list(array.shape)} {float(np.abs(array).sum()):.3g}" for name, array in arrays)
    if path.suffix == ".onnx":
        return str(pt.load(path))
    return path.read_text("utf-8") if path.suffix in (".dot", ".svg", ".json") else "written"


def lines(subject: str) -> Iterator[str]:
    """The lines of the file for a subject."""
    with (
        devices(), wrong_device(), warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder),
        mock.patch.dict(os.environ, {"COLUMNS": "140", "XDG_CACHE_HOME": str(Path(folder) / ".cache")}),
    ):
        warnings.simplefilter("always")
        write_models()
        for line in COMMANDS[subject].strip().splitlines():
            yield f"{line.strip()} | {shortened(ran(line))}"


@contextlib.contextmanager
def wrong_device() -> Iterator[None]:
    """A device whose Neg is off by a hundredth."""
    from partita.graph.interpret import interpret
    from tests.accelerators.hetero.small_devices import Ran, device

    class Off(Ran):
        def run(self, inputs, out=None):  # type: ignore[no-untyped-def]
            factor = 1.01 if any(node.op == "Neg" for node in self.graph.nodes) else 1.0
            return [x * np.float32(factor) for x in interpret(self.graph, inputs)]

    with device("wrong", subgraph_type=Off, compile=lambda self, graph, config: Off(graph)):
        yield


if __name__ == "__main__":
    KEPT.write_text("".join(f"{line}\n" for subject in COMMANDS for line in lines(subject)), "utf-8")
