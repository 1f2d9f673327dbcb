"""Generated parts of the site: the help of each verb, the list of the passes, the reports of the gallery, and the pages made of
files outside docs/, the notebooks and the list of changes."""

from __future__ import annotations

import html
import json
import os
import re
import runpy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

HELP, PASSES, DEVICE_PASSES = "<!-- help -->", "<!-- passes -->", "<!-- passes of tvm -->"
"""Where it goes."""


HEIGHT = 420
"""How many pixels of a picture in a notebook are seen without scrolling."""


def on_config(config: Any) -> Any:
    """The settings of the site, with a link to the repository if its address is known (setup.py says how)."""
    config.repo_url = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["address"]()
    config.repo_name = "/".join(config.repo_url.split("/")[-2:]) if config.repo_url else None
    return config


def on_files(files: Any, config: Any) -> Any:
    """The files of the site, with the pages that are made of others."""
    from mkdocs.structure.files import File

    gallery = runpy.run_path(str(ROOT / ".ci" / "gallery.py"))["pages"]()
    for name, text in {**outside_pages(), **{f"gallery/{name}": text for name, text in gallery.items()}}.items():
        files.append(File.generated(config, name, content=text))
    return files


def outside_pages() -> dict[str, str]:
    """The pages made of files outside docs/, by their names in the site."""
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    pages = {f"notebooks/{path.stem}.md": notebook_page(path) for path in notebooks}
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8").replace("](docs/", "](")
    return {**pages, "changes.md": changes}


def notebook_page(path: Path) -> str:
    """A notebook as Markdown, with what its cells printed and drew."""
    cells = json.loads(path.read_text("utf-8"))["cells"]
    parts = [f"*The notebook `notebooks/{path.name}`, as it ran.*"]
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(re.sub(r"\]\(\.\./docs/", "](../", source))
        else:
            parts.append(f"```python\n{source}\n```")
            parts += [_shown(output) for output in cell["outputs"]]
    first = next((i for i, part in enumerate(parts) if part.startswith("# ")), None)
    if first is not None:  # the page's title stands first
        parts.insert(0, parts.pop(first))
    return "\n\n".join(filter(None, parts)) + "\n"


def _shown(output: Any) -> str:
    """One output of a cell: the richest form that there is."""
    data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
    if "text/html" in data or "image/svg+xml" in data:
        page = data.get("text/html") or data["image/svg+xml"]
        return f'<iframe srcdoc="{_flat(page)}" loading="lazy" style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
    if "image/png" in data:
        return f'<img src="data:image/png;base64,{data["image/png"].strip()}" alt="what the cell drew">'
    text = "".join(output.get("text", [])) or data.get("text/plain", "")
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""


def _flat(page: str) -> str:
    """HTML as an attribute's value, in one line: Markdown ends a block of HTML at an empty line."""
    return html.escape(page).replace("\n", "&#10;")


def on_page_markdown(markdown: str, **more: Any) -> str:
    """A page's text, with what is generated in the places that are marked for it."""
    if HELP in markdown:
        markdown = markdown.replace(HELP, _help())
    for mark, family in ((PASSES, ""), (DEVICE_PASSES, "tvm")):
        markdown = markdown.replace(mark, _passes(family)) if mark in markdown else markdown
    return markdown


def _help() -> str:
    """A section for each verb."""
    import argparse

    from partita.cli.main import make_parser

    os.environ["COLUMNS"] = "100"
    verbs = next(action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return "\n".join(f"## partita {name}\n\n```text\n{parser.format_help()}```\n" for name, parser in verbs.choices.items())


def _passes(family: str) -> str:
    """A row for each pass of a family."""
    import partita as pt
    from partita.passes import pass_info

    rows = [_row(pass_info(name, family)) for name in pt.list_passes(family)]
    return "\n".join(["| pass | what it does |", "|---|---|", *rows])


def _row(info: Any) -> str:
    return f"| `{info.name}` | {' '.join((info.run.__doc__ or '').split()).replace('|', chr(92) + '|')} |"
