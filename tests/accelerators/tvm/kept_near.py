"""Graphs beside those whose kernels are kept: of each a few that differ by one or two small edits. An attribute or an operand is
left out, a number is another one, a size is dynamic, a constant is an input, a value is read once more. An edit may take a
pattern away, or a kernel; the sums are over all kernels, over the graph around them and the order in which cuts were preferred.

`python -m tests.accelerators.tvm.kept_near` writes the lines of `kept_near.txt` anew, and `python -m
tests.accelerators.tvm.kept_near 3` draws up to three more graphs beside each, and adds those with kernels of their own."""

from __future__ import annotations

import random
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import onnx

import partita as pt
from partita.accelerators import accelerator
from partita.accelerators.errors import CompileError
from partita.accelerators.tvm.bodies.body import make_body
from partita.accelerators.tvm.device import TvmAccelerator
from partita.accelerators.tvm.kernels.shared.choice import choosing
from partita.accelerators.tvm.lower.lowering import own_draft
from partita.accelerators.tvm.sizes.sizing import Sized
from partita.graph.nested import graphs_in
from partita.passes.registry import LAYOUT_NOTES
from tests.accelerators.tvm.plan_graphs import GRAPHS
from tests.accelerators.tvm.planned import (
    FRACTION,
    MACHINES,
    TURNS,
    _forms,
    _rounded,
    _sum_of_form,
    _summary,
    sum_of_loops,
    written,
)

KEPT = Path(__file__).with_name("kept_near.txt")

ALIKE = (
    "Relu Sigmoid Tanh LeakyRelu Elu Abs Neg Sqrt Erf Gelu HardSwish Identity Clip".split(),
    "Add Sub Mul Div Max Min Pow".split(),
    "MaxPool AveragePool LpPool".split(), "GlobalAveragePool GlobalMaxPool".split(), "Softmax LogSoftmax Hardmax".split(),
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL2".split(), "ArgMax ArgMin".split(),
    "Gather GatherElements".split(), "LSTM GRU RNN".split(), "Squeeze Unsqueeze Reshape Flatten".split(),
)
"""Ops that can take each other's place."""

ELEMENTS = ("float", "bfloat16", "float16", "double", "int32", "int64", "int8", "uint8")

Edit = Callable[[str, random.Random], str]


def _replaced(text: str, pattern: str, rng: random.Random, by: Callable[[re.Match[str]], str], every: bool = False) -> str:
    """The text with one of the matches, or all that are like it, replaced."""
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    one = rng.choice(found)
    new = by(one)
    if every:
        return "".join(new if part == one[0] else part for part in re.split(f"({pattern})", text))
    return text[: one.start()] + new + text[one.end() :]


ATTRIBUTES = r"(?<! Constant )<[^<>]+>"


def without_attribute(text: str, rng: random.Random) -> str:
    """An attribute less."""
    def left(found: re.Match[str]) -> str:
        parts = re.split(r", (?=\w+ =)", found[0][1:-1])
        parts.remove(rng.choice(parts))
        return f"<{', '.join(parts)}>" if parts else ""

    return _replaced(text, ATTRIBUTES, rng, left)


def other_attribute(text: str, rng: random.Random) -> str:
    """Another number in an attribute."""
    def other(found: re.Match[str]) -> str:
        return _replaced(found[0], r"(?<=[\[, -])\d+(?=[\],>])(?!\.)", rng, lambda number: str(_near(int(number[0]), rng)))

    return _replaced(text, ATTRIBUTES, rng, other)


def other_number(text: str, rng: random.Random) -> str:
    """Another number in a constant."""
    def other(found: re.Match[str]) -> str:
        return _replaced(found[0], r"(?<=[ \[,{])\d+(?=[\],}])", rng, lambda number: str(_near(int(number[0]), rng)))

    return _replaced(text, r"Constant <[^<>]+>", rng, other)


def _near(number: int, rng: random.Random) -> int:
    return max(0, rng.choice((number - 1, number + 1, 0, 1, 2, 2 * number)))


def other_size(text: str, rng: random.Random) -> str:
    """Another size, wherever it is."""
    inputs, arrow, rest = text.partition(" =>")
    def other(found: re.Match[str]) -> str:
        return str(max(1, _near(int(found[0]), rng)))

    return _replaced(inputs, r"(?<=[\[,])\d+(?=[\],])", rng, other, every=True) + arrow + rest


def dynamic_size(text: str, rng: random.Random) -> str:
    """A size of an input that is dynamic."""
    inputs, arrow, rest = text.partition(" =>")
    declared = inputs.split(", ")
    name, size = rng.choice("NTH"), re.compile(r"(?<=[\[,])\d+(?=[\],])")
    dynamic = [one for one in declared if size.search(one) and not one.rpartition(" ")[2].startswith("w")]
    if not dynamic:
        return text
    number = rng.choice(size.findall(rng.choice(dynamic)))
    made = [size.sub(lambda found: name if found[0] == number else found[0], one) if one in dynamic else one for one in declared]
    return ", ".join(made) + arrow + rest


def other_op(text: str, rng: random.Random) -> str:
    """Another op of the kind."""
    kinds = [kind for kind in ALIKE if any(f" {op} " in text for op in kind)]
    if not kinds:
        return text
    kind = rng.choice(kinds)
    return _replaced(text, rf"(?<=[ ])({'|'.join(kind)})(?= [(<])", rng, lambda found: rng.choice(kind))


def turned_inputs(text: str, rng: random.Random) -> str:
    """Two operands that change places."""
    return _replaced(text, r"\(\w+, \w+(?=[,)])", rng, lambda found: "({1}, {0}".format(*found[0][1:].split(", ")))


def fewer_inputs(text: str, rng: random.Random) -> str:
    """An operand less."""
    body = text.index("{")
    return text[:body] + _replaced(text[body:], r", \w*\)", rng, lambda found: ")")


def same_inputs(text: str, rng: random.Random) -> str:
    """An operand that another one takes the place of."""
    body = text.index("{")
    names = re.findall(r"\w+(?= = )", text[body:]) + re.findall(r"\w+(?=[,)])", text.partition(" =>")[0])
    return text[:body] + _replaced(text[body:], r"(?<=[( ])\w+(?=[,)])", rng, lambda found: rng.choice(names))


def input_for_constant(text: str, rng: random.Random) -> str:
    """A constant that is an input."""
    constants = re.findall(r"(?<= )w\w*(?=[,)])", text.partition(" =>")[0])
    if not constants:
        return text
    name = rng.choice(constants)
    return re.sub(rf"\b{name}\b", f"u{name}", text)


def constant_for_input(text: str, rng: random.Random) -> str:
    """An input that is a constant."""
    names = [name for name in re.findall(r"(?<= )\w+(?=[,)])", text.partition(" =>")[0]) if name[0] != "w"]
    if len(names) < 2:
        return text
    return re.sub(rf"\b{rng.choice(names[1:])}\b(?=[,) ])", "w99", text)


def one_more_output(text: str, rng: random.Random) -> str:
    """A value inside that is an output too."""
    kind = re.search(r"=> \((\w+)", text)
    made = re.findall(r"\w+(?= = (?!Constant)[A-Z])", text)
    if kind is None or len(made) < 2:
        return text
    head, arrow, rest = text.partition("=> (")
    return f"{head}{arrow}{rng.choice((kind[1], 'float'))}[] {rng.choice(made[:-1])}, {rest}"


def read_once_more(text: str, rng: random.Random) -> str:
    """A value inside that another op reads."""
    made = re.findall(r"\w+(?= = (?!Constant)[A-Z])", text)
    if len(made) < 2:
        return text
    name = rng.choice(made[:-1])
    head, arrow, rest = text.rstrip("} ").partition("=> (")
    return f"{head}{arrow}float[] zz, {rest} zz = Neg ({name}) }}"


def other_element(text: str, rng: random.Random) -> str:
    """Another element type, wherever it is."""
    kind = re.search(r"(\w+)\[", text)
    return text if kind is None else re.sub(rf"\b{kind[1]}\[", f"{rng.choice(ELEMENTS)}[", text)


EDITS: tuple[Edit, ...] = (
    without_attribute, other_attribute, other_attribute, other_number, other_size, other_size, dynamic_size, other_op,
    turned_inputs, fewer_inputs, same_inputs, input_for_constant, constant_for_input, one_more_output, read_once_more,
    other_element,
)


def edited(subject: str) -> str:
    """The text of a graph beside the one that the subject names; that one itself for a subject without a number."""
    text, rng = GRAPHS[subject.rpartition(" ~")[0]].replace(" <>", ""), random.Random(subject)
    for _ in range(rng.choice((1, 1, 2)) if subject[-1] != "~" else 0):
        for _ in range(4):
            before, text = text, rng.choice(EDITS)(text, rng)
            if text != before:
                break
    return text


def machine_of(subject: str) -> str:
    """The machine of a graph."""
    return (*TURNS, "many")[zlib.crc32(subject.encode()) % (len(TURNS) + 1)]


def line(subject: str) -> str:
    """The line of a graph; an error of ONNX or of ours where it is none."""
    graph, name = written(edited(subject)), machine_of(subject)
    try:
        listed = list(kernels_around(graph, name, "bf16" if subject.startswith("narrow") else "f32"))
    except CompileError as error:
        listed = [f"refused: {error.cause}"]
    return f"{subject} | {name} | {', '.join(listed)}"


DIGEST = re.compile(r"#[0-9a-f]{20}")
"""The digest of a constant: the last digits of one that was computed differ from one processor to the next."""


def _constants(graph: pt.Graph) -> str:
    """A sum over the constants of a graph and of its calls."""
    arrays = [node.value for inner in graphs_in(graph) for node in inner.nodes if node.value is not None]
    return str(zlib.crc32(b"".join(_rounded(array) for array in arrays if array.dtype.kind in "iubfV")))


def _rounded_text(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2e}"


def kernels_around(graph: pt.Graph, name: str, precision: str = "f32", has_rules: bool = True) -> Iterator[str]:
    """The schedules of each form of a graph, and a sum over them, over what is around them and over what was preferred; with
    `has_rules` also over kernels that are scheduled by a rule, which take TVM long."""
    machine = MACHINES[name]
    device = accelerator(machine.kind).configured({"PRECISION": precision} if precision != "f32" else {})
    assert isinstance(device, TvmAccelerator)
    for form in _forms(graph, device):
        noted = [f"form {_sum_of_form(form):08x}"] if isinstance(form, Sized) else []
        fused = device.fused(form.graph if isinstance(form, Sized) else form, machine, flagged=True)
        noted += [FRACTION.sub(_rounded_text, DIGEST.sub("#", str(fused))), str(fused.attrs.get(LAYOUT_NOTES)), _constants(fused)]
        schedules = []
        for call in [node for node in fused.nodes if node.is_call]:
            assert call.subgraph is not None
            body = make_body(call.subgraph)
            try:
                with choosing({}) as choices:
                    draft = own_draft(body, machine)
                is_by_rule = draft is None or draft.kernel is None
                schedules.append("by rule" if draft is None or is_by_rule else draft.schedule)
                if has_rules or not is_by_rule:
                    noted.append(f"{choices.offered} {_summary(draft, body, machine)}")
                noted.append(str(sum_of_loops(body, machine)) if has_rules and machine.is_gpu and is_by_rule else "")
            except (pt.PartitaError, TypeError, ValueError, AssertionError, IndexError) as error:
                schedules.append(type(error).__name__)
        yield f"{'+'.join(schedules)} {zlib.crc32(str(noted).encode()):08x}"


@cache
def kept() -> dict[str, str]:
    """The lines of the file by subject."""
    return {line.partition(" | ")[0]: line for line in KEPT.read_text("utf-8").splitlines()} if KEPT.exists() else {}


EACH = 8
"""The number of graphs of a test."""


def batches() -> list[list[str]]:
    """The subjects of the file, some for each test."""
    subjects = list(kept())
    return [subjects[first : first + EACH] for first in range(0, len(subjects), EACH)]


def _more(count: int) -> Iterator[str]:
    """The lines of graphs beside each whose kernels no other has."""
    seen = {line.rpartition(" | ")[2] for line in kept().values()}
    for name in [name for name, text in GRAPHS.items() if text]:
        numbers = [int(subject.rpartition(" ~")[2]) for subject in kept() if subject.rpartition(" ~")[0] == name]
        for number in range(max(numbers, default=-1) + 1, max(numbers, default=-1) + 1 + count):
            subject = f"{name} ~{number}"
            if edited(subject) == edited(name + " ~"):
                continue
            try:
                one = line(subject)
            except (pt.PartitaError, onnx.parser.ParseError, ArithmeticError, LookupError, TypeError, ValueError, AssertionError):
                continue
            said = one.rpartition(" | ")[2]
            if said and said not in seen:
                seen.add(said)
                yield one


def main(asked: list[str]) -> None:
    """Write the file."""
    lines = [line(subject) for subject in kept()]
    with KEPT.open("w", encoding="utf-8") as file:
        for one in chain(lines, _more(int(asked[0]) if asked else 0)):
            file.write(f"{one}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
