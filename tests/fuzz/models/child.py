"""The process that models are tried in: python -m tests.fuzz.models.child

Reads requests as lines of JSON (a seed, settings, whether functions are inlined, perhaps the names of the ops that are kept) and
answers each with a line for every setting before it begins and one with what was found. If it crashes or hangs, whoever asked
knows where."""

from __future__ import annotations

from typing import Any

import attrs

from tests.fuzz.children import Tell, serve
from tests.fuzz.models.check import Finding, check, wanted_of
from tests.fuzz.models.generate import generate
from tests.fuzz.models.reduce import cut, flat


def main() -> None:
    """Serve until the input ends."""
    serve(_answer)


def _answer(request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    refused: list[str] = []
    findings = _findings(request, tell, refused)
    return {"findings": [attrs.asdict(finding) for finding in findings], "refused": refused}


def _findings(request: dict[str, Any], tell: Tell, refused: list[str]) -> list[Finding]:
    tell({"setting": "generate"})
    case = generate(request["seed"], refused)
    if request.get("flat"):
        case = flat(case)
    if request.get("keep") is not None:
        small = cut(case, set(request["keep"]))
        if small is None:
            return []
        case = small
    wanted = wanted_of(case)
    listed = []
    for setting in request["settings"]:
        tell({"setting": setting})
        finding = check(case, setting, request["seed"], wanted)
        if finding is not None:
            listed.append(finding)
    return listed


if __name__ == "__main__":
    main()
