"""The examples of README.md and docs/ run, and print what the pages say.

The blocks of a page run in order, the Python ones in one namespace. A text block right behind a Python block is what it prints;
in a console block the lines behind `$ partita ...` are what the command prints, progress left out; other commands are not run.
"..." stands for anything.
A page that begins with `<!-- needs: torch -->` runs where that package is.
`python -m tests.test_docs PAGE ...` writes what is printed now into the pages."""

from __future__ import annotations

import asyncio
import contextlib
import doctest
import io
import json
import os
import re
import runpy
import shlex
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

import attrs
import pytest

from partita.cli.main import main
from tests.house import STOREYS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [path for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if path.exists()]

BLOCK = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```$)?|^```console\n(?P<console>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"^\$ (?P<command>(?:.*\\\n)*.*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)

NEEDS = re.compile(r"^<!-- needs: (.+) -->$", re.MULTILINE)
"""The packages of extras without which a page's examples are not run."""

COLUMNS = "100"
"""How wide the terminal of the console blocks is."""


@attrs.frozen
class Example:
    """A piece of code, or a command, and what the page says that it prints."""

    line: int
    code: str
    wanted: str | None
    span: tuple[int, int]
    """The lines of the page that hold the output."""
    is_command: bool

    def printed(self, page: Path, names: dict[str, object]) -> str:
        """What it prints now."""
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream if self.is_command else sys.stderr):
            if self.is_command:
                status = main([*shlex.split(self.code.replace("\\\n", " "))[1:], "--quiet"])
                assert status == 0 or "error:" in stream.getvalue(), f"{self.code} ended with {status}"
            else:
                _execute(compile("\n" * self.line + self.code, str(page), "exec"), names)
        return re.sub(r"[ \t]+$", "", stream.getvalue(), flags=re.MULTILINE)


def _execute(code: CodeType, names: dict[str, object]) -> None:
    """Run the code as a program would. A browser's driver, which other tests start, leaves an event loop running in this thread:
    then it runs in another."""
    if asyncio._get_running_loop() is None:
        exec(code, names)  # noqa: S102  that is what the test is for
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(exec, code, names).result()


def examples(text: str) -> Iterator[Example]:
    for block in BLOCK.finditer(text):
        if block["console"] is None:
            line = text.count("\n", 0, block.start("code"))
            yield Example(line, block["code"], block["output"], block.span("output"), False)
            continue
        for item in COMMAND.finditer(block["console"]):
            if item["command"].startswith("partita "):
                start = block.start("console") + item.start("output")
                line = text.count("\n", 0, start)
                yield Example(line, item["command"], item["output"] or None, (start, start + len(item["output"])), True)


def is_as_said(wanted: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS)


@pytest.fixture
def own_devices() -> Iterator[None]:
    """Devices that a page registers are gone after it; providers that another test added to onnxruntime, before."""
    from partita.accelerators.interface import registry

    before = set(registry._registered)
    if find_spec("onnxruntime") is not None:
        import onnxruntime

        added = getattr(onnxruntime, "get_ep_devices", list)()  # new in 1.23
        for name in {device.ep_name for device in added if device.ep_vendor == "Partita"}:
            onnxruntime.unregister_execution_provider_library(name)
    yield
    for name in set(registry._registered) - before:
        registry.unregister_accelerator(name)


@pytest.mark.usefixtures("own_devices")
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in " ".join(NEEDS.findall(page.read_text("utf-8"))).split():
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", COLUMNS)
    names: dict[str, object] = {"__name__": "__main__"}
    for example in examples(page.read_text("utf-8")):
        printed = example.printed(page, names)
        if example.wanted is not None:
            position = f"{page.relative_to(ROOT)}:{example.line + 1}"
            assert is_as_said(example.wanted, printed), f"{position} prints\n{printed}\nand the page says\n{example.wanted}"


def test_the_picture_is_what_the_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = next(example.code for example in examples((ROOT / "README.md").read_text("utf-8")) if example.is_command)
    assert main([*shlex.split(command.replace("\\\n", " "))[1:], "--quiet"]) == 0
    kept = ROOT / "docs" / "pictures" / "googlenet.svg"
    assert Path("googlenet.svg").read_bytes() == kept.read_bytes(), "run README's first command in docs/pictures"


def test_every_make_command_has_its_target() -> None:
    pages = "".join(path.read_text("utf-8") for path in [*PAGES, ROOT / "CONTRIBUTING.md"])
    named = set(re.findall(r"^\$ (?:.* )?make ([a-z-]+)", pages, re.MULTILINE)) | set(re.findall(r"`make ([a-z-]+)", pages))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_reference_has_every_public_name() -> None:
    import partita

    folder = ROOT / "docs" / "reference"
    pages = "".join(path.read_text("utf-8") for path in folder.glob("*.md") if path.stem != "index")
    missing = [name for name in partita.__all__ if not re.search(rf"(:::.*\.{name}$|`{name}`)", pages, re.MULTILINE)]
    assert not missing, "these belong into docs/reference/"
    index = (folder / "index.md").read_text("utf-8")
    assert sorted(re.findall(r"\[`pt\.(\w+)`\]", index)) == sorted(partita.__all__), "docs/reference/index.md has each name once"


def test_what_is_written_by_hand_in_performance_says_so() -> None:
    """Figures outside what `make bench` writes stand in a part that is marked, or in the description of the measurement."""
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    unmarked = []
    for section in re.split(r"^(?=## )", page, flags=re.MULTILINE)[1:]:
        plain = re.sub(r"<!-- bench:(\w+) -->.*?<!-- /bench:\1 -->", "", section, flags=re.DOTALL)
        by_hand = plain.partition("*Written by hand")[0]
        if re.search(r"^\|.*\d|\d GFLOP/s", by_hand, re.MULTILINE):
            unmarked.append(section.partition("\n")[0])
    assert not unmarked, "say in these that they are written by hand"


def test_troubleshooting_quotes_messages_that_there_are() -> None:
    """Of each message the longest part without numbers and names has to stand in the sources."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    sources = [*(path for folder in STOREYS for path in (ROOT / folder).rglob("*.py")), ROOT / ".ci" / "venv"]
    text = re.sub(r'"\s*\n\s*f?"', "", "".join(path.read_text("utf-8") for path in sources))
    quoted = re.findall(r"^\| (?!message)([^|]+) \|", page, re.MULTILINE)
    messages = [message for cell in quoted for message in re.findall(r"`([^`]+)`", cell) if " " in message]
    assert len(messages) > 20
    for message in messages:
        parts = [part.strip(" :,;") for part in re.split(r"\.\.\.|(?<!\w)'[^']*'|\S*\d\S*|\S*_\S*|[\[\]]", message)]
        longest = max(parts, key=len)
        assert longest in text, f"nobody says {longest!r} of {message!r}"


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted([*pages, *hook()["outside_pages"]()]), "the nav of mkdocs.yml"


def hook() -> dict[str, Any]:
    """What .ci/docs_hook.py defines."""
    return runpy.run_path(str(ROOT / ".ci" / "docs_hook.py"))


def gallery() -> dict[str, Any]:
    """The names that .ci/gallery.py defines."""
    return runpy.run_path(str(ROOT / ".ci" / "gallery.py"))


def test_the_gallery_links_to_its_pages() -> None:
    page = (ROOT / "docs" / "gallery.md").read_text("utf-8")
    assert tuple(dict.fromkeys(re.findall(r"\]\(gallery/([\w.-]+)\)", page))) == gallery()["NAMES"]


@pytest.mark.slow
def test_the_pages_of_the_gallery_are_made() -> None:
    pages = gallery()["pages"]()
    assert sorted(pages) == sorted(gallery()["NAMES"])
    assert all(text.startswith("<!doctype html>") for text in pages.values())


def test_notebooks_are_pages_of_the_site() -> None:
    pages = hook()["outside_pages"]()
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page = pages[f"notebooks/{path.stem}.md"]
        assert page.startswith("# "), "the title comes first"
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            assert "".join(cell["source"]).strip()[:40] in page or "](../" in page
        assert page.count("```") % 2 == 0
        frames = re.findall(r"<iframe[^\n]*</iframe>$", page, re.MULTILINE)
        assert len(frames) == page.count("<iframe "), "each picture is one line, which Markdown leaves alone"
        for link in re.findall(r"\]\(\.\./([^)#]+)", page):
            assert (ROOT / "docs" / link).exists(), f"{path.name} links to {link}"


def test_the_changes_are_a_page_of_the_site() -> None:
    page = hook()["outside_pages"]()["changes.md"]
    assert page.startswith("# Changes\n")
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", page):
        assert (ROOT / "docs" / link).exists(), f"CHANGELOG.md links to {link}"


def rewrite(page: Path) -> None:
    """Put what the examples print now into the page, save where it says so already."""
    text, names = page.read_text("utf-8"), {"__name__": "__main__"}
    shift = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for example in examples(text):
            printed = example.printed(page, names)  # type: ignore[arg-type]
            start, end = (position + shift for position in example.span)
            if example.wanted is not None and not is_as_said(example.wanted, printed):
                text = text[:start] + printed + text[end:]
                shift += len(printed) - (end - start)
    page.write_text(text, "utf-8")


if __name__ == "__main__":
    os.environ["COLUMNS"] = COLUMNS
    for name in sys.argv[1:]:
        rewrite(Path(name).resolve())
