"""What the report page bundles, and under which licences: python -m tests.licences

Compares the lock file of the page's program, the list that each page carries, and the table of docs/report.md."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
WEB, BUILT = ROOT / "partita" / "page" / "web", ROOT / "partita" / "page" / "built"

ALLOWED = {
    "MIT": "Permission is hereby granted, free of charge",
    "ISC": "Permission to use, copy, modify, and/or distribute this software",
    "BSD-3-Clause": "Redistribution and use in source and binary forms",
    "Apache-2.0": "Apache License",
}
"""The licences that a bundled package may have, each with words of its text."""

_HEAD = re.compile(r"^((?:@[\w.-]+/)?[\w.-]+) (\d+\.\d+\.\d+\S*) \(([^)]+)\)$", re.MULTILINE)

Package = tuple[str, str, str]
"""Name, version, licence."""


def locked() -> list[Package]:
    """The packages that are bundled: what the page's program needs when it runs, by the lock file."""
    packages = json.loads((WEB / "package-lock.json").read_text("utf-8"))["packages"]
    names = [(path.rpartition("node_modules/")[2], item) for path, item in packages.items() if path]
    return sorted((name, item["version"], item.get("license", "")) for name, item in names if not item.get("dev"))


def carried() -> dict[Package, str]:
    """The packages that each page names, with the text of their licences."""
    text = (BUILT / "licences.txt").read_text("utf-8")
    heads = list(_HEAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {(head[1], head[2], head[3]): text[head.end() : end] for head, end in zip(heads, ends)}


def wrong() -> Iterator[str]:
    """A line for each package whose licence does not fit."""
    page, pages = carried(), (ROOT / "docs" / "report.md").read_text("utf-8")
    for name, version, licence in locked():
        if licence not in ALLOWED:
            yield f"{name} {version} has the licence {licence!r}, which is none of {', '.join(ALLOWED)}"
        elif (name, version, licence) not in page:
            yield f"{name} {version} ({licence}) is bundled, and licences.txt does not name it: make page"
        elif ALLOWED[licence] not in page[name, version, licence]:
            yield f"licences.txt does not hold the text of the licence of {name} {version}"
        if f"| {name} | {version} | {licence} |" not in pages:
            yield f"docs/report.md lacks the row | {name} | {version} | {licence} |"
    for name, version, _ in set(page) - set(locked()):
        yield f"licences.txt names {name} {version}, which is not bundled"


def main() -> None:
    """Print what is bundled; fail if something does not fit."""
    for name, version, licence in locked():
        print(f"{name} {version}: {licence}")
    sys.exit("\n".join(wrong()) or None)


if __name__ == "__main__":
    main()
