"""What mkdocs puts into the pages while it builds them: the help of each verb, and the list of the passes."""

from __future__ import annotations

import os
from typing import Any

HELP, PASSES = "<!-- help -->", "<!-- passes -->"
"""Where it goes."""


def on_page_markdown(markdown: str, **more: Any) -> str:
    """A page's text, with what is generated in the places that are marked for it."""
    if HELP in markdown:
        markdown = markdown.replace(HELP, _help())
    return markdown.replace(PASSES, _passes()) if PASSES in markdown else markdown


def _help() -> str:
    """A section for each verb."""
    import argparse

    from partita.cli.main import make_parser

    os.environ["COLUMNS"] = "100"
    verbs = next(action for action in make_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return "\n".join(f"## partita {name}\n\n```text\n{parser.format_help()}```\n" for name, parser in verbs.choices.items())


def _passes() -> str:
    """A row for each pass."""
    import partition  # noqa: F401  its passes register themselves
    from passes import list_passes, pass_info

    return "\n".join(["| pass | what it does |", "|---|---|", *(_row(pass_info(name)) for name in list_passes())])


def _row(info: Any) -> str:
    return f"| `{info.name}` | {' '.join((info.run.__doc__ or '').split()).replace('|', chr(92) + '|')} |"
