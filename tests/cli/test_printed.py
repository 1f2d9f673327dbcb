"""Options and tables as they are printed: the numbers that options have by default and take at least, and lists that are cut."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import pytest

import partita as pt
from partita.accelerators.interface.accelerator import TunedKernel
from partita.accelerators.precision.tuning import TuningReport
from partita.accelerators.store import CacheEntry
from partita.accelerators.store.key import EntryKey
from partita.cli import cache
from partita.cli.main import VERBS, make_parser
from tests.cli.conftest import Command

EVERY = {"--seed": 0, "--normalize": "imagenet", "--verbose": 0}
"""What options have in all verbs that take them."""

OWN = {
    "run": {"--profile": 10, "--calls": 0, "--fail-on": [("difference", 1.0)]},
    "bench": {
        "--streams": 1, "--seconds": 5.0, "--warmup": 1, "--profile": 0, "--fail-on": [("refused", 1.0)],
    },
    "tune": {"--seconds": 60.0},
    "place": {"--objective": "latency"},
    "auto": {"--seconds": 60.0, "--tolerance": 0.01},
    "precision": {"--calls": 4, "--tolerance": 0.01, "--precisions": ["int8"], "--win": "time", "--calibration": "minmax"},
    "compare": {"--tolerance": 0.01},
    "export": {"--form": "partita"},
    "diagnose": {"--against": "reference", "--runs": 2},
    "reduce": {"--against": "reference", "--most": 400, "--repeats": 1},
    "capsule": {"--subgraph": "0", "--against": "reference"},
}

LEAST = {
    "inspect --memory": 1, "run --roofline": 1,
    "--seed": 0, "run --profile": 0, "run --calls": 0, "bench --threads": 1, "bench --batch": 1, "bench --streams": 1,
    "bench --iterations": 1, "bench --warmup": 0, "bench --profile": 0, "precision --calls": 1, "diagnose --runs": 1,
    "map --workers": 1, "reduce --most": 1, "reduce --repeats": 1, "--min-size": 1, "--max-subgraphs": 0,
    "--max-nodes": 1, "--longest": 1,
}


def options(verb: str) -> dict[str, argparse.Action]:
    """The options of a verb by their long names."""
    verbs = next(a for a in make_parser([verb])._actions if isinstance(a, argparse._SubParsersAction))
    return {a.option_strings[-1]: a for a in verbs.choices[verb]._actions if a.option_strings}


@pytest.mark.parametrize("verb", VERBS)
def test_options_have_by_default(verb: str) -> None:
    defaults = {name: action.default for name, action in options(verb).items() if name != "--help" and action.nargs != 0}
    stated = {name: default for name, default in defaults.items() if default not in (None, [])}
    assert stated == {name: value for name, value in EVERY.items() if name in defaults} | OWN.get(verb, {})


@pytest.mark.parametrize("verb", VERBS)
def test_counts_have_a_least_value(verb: str) -> None:
    for name, action in options(verb).items():
        if getattr(action.type, "__name__", "") == "integer":
            least = LEAST[name] if name in LEAST else LEAST[f"{verb} {name}"]
            assert action.type(str(least)) == least  # type: ignore[operator,arg-type]
            with pytest.raises(argparse.ArgumentTypeError, match=f"{least - 1} is less than {least}"):
                action.type(str(least - 1))  # type: ignore[operator]


def entries(count: int) -> list[CacheEntry]:
    used = time.mktime((2024, 3, 5, 6, 7, 0, 0, 0, -1))
    key = EntryKey("cpu", "body", "shapes", "weights", "target", "options", "versions")
    return [CacheEntry(f"{i:064x}", key, "net", f"cpu_{i}", 3, 2048, 1.25, used, used, (), f"reason {i}") for i in range(count)]


def test_the_cache_as_a_table(partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "entries").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "list_entries", lambda folder: entries(1))
    lines = partita("cache ls --folder .").out.splitlines()
    assert lines[0] == ".: 1 entry"
    assert [cell.strip() for cell in lines[2].split("┃")] == [
        "", "model", "subgraph", "key", "device", "ops", "code", "compiled in", "last used", "",
    ]
    assert [cell.strip() for cell in lines[4].split("│")] == [
        "", "net", "cpu_0", "0" * 12, "cpu", "3", "2.0 KiB", "1.25 s", "2024-03-05 06:07", "",
    ]


@pytest.mark.parametrize(
    ("words", "count", "head", "first", "shown"),
    [
        ("", 30, "30 entries", 0, 30),
        ("", 31, "31 entries, the last used are:", 1, 30),
        ("--all", 31, "31 entries", 0, 31),
        ("cpu_7", 31, "1 entry", 7, 1),
        ("000000000000", 31, "31 entries, the last used are:", 1, 30),
    ],
)
def test_the_entries_used_last(
    partita: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, count: int, head: str, first: int, shown: int
) -> None:
    (tmp_path / "entries").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache, "list_entries", lambda folder: entries(count))
    lines = partita(f"cache explain {words} --folder .").out.splitlines()
    assert lines[0] == f".: {head}"
    reasons = [line.split("│")[4].strip() for line in lines if "reason" in line]
    assert reasons == [f"reason {i}" for i in range(first, first + shown)]


def test_what_tuning_found_as_a_table(partita: Command, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = (TunedKernel("conv1", 1234.56, 1000.0, 9, {"tile": "8", "order": "rows"}), TunedKernel("relu1", 2.0, 2.0, 3, {}))
    for interrupted, status in ((False, 0), (True, 130)):
        report = TuningReport(kernels, interrupted, 2.4)
        monkeypatch.setattr(pt, "tune", lambda model, seconds, progress, report=report: report)
        done = partita(f"tune {model} --devices reference --seconds 2")
        lines = done.out.splitlines()
        assert (done.status, lines[0]) == (status, "small: 2 kernels")
        assert "measuring kernels for about 2 s" in done.err
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
        assert rows == [["conv1", "1,234.6", "1,000.0", "9", "tile: 8, order: rows"], ["relu1", "2.0", "2.0", "3", ""]]
    assert str(report) == "1 of 2 kernels are faster now (2 s)\n  conv1: 1234.6 µs -> 1000.0 µs, 9 tried"
