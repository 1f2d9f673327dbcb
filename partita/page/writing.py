"""The page as one self-contained file: the scene, the program that shows it, and the styles."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from partita.accelerators import Placement, Profile
from partita.accelerators.process.atomic import write_text
from partita.accelerators.runtime.real_runs import Timeline
from partita.graph.errors import WriteError, check_path
from partita.page.collect import Subject, collect
from partita.page.differences import compared
from partita.page.reading import read_page
from partita.page.scene import Scene

POLICY = (
    "default-src 'none'; script-src '{script}'; style-src '{style}'; worker-src blob:; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
"""Content security policy that lets a browser run only this program and use only these styles."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="generator" content="Partita">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page draws a graph and needs JavaScript for it.</noscript>
<script type="application/json" id="scene">{scene}</script>
<script id="program">{script}</script>
<!--
{licences}
-->
</body>
</html>
"""


def report_page(
    subject: Subject,
    path: str | os.PathLike[str],
    *,
    profile: Profile | None = None,
    placement: Placement | None = None,
    before: Subject | str | os.PathLike[str] | None = None,
    timeline: Timeline | None = None,
) -> Path:
    """Write one HTML file that shows a graph, plan, placement or compiled model: devices, borders and the reasons for them.

    A `profile` (`model.profile()`) adds the times of a run, and a `timeline` (`model.timeline()`) its calls on devices and
    threads. For a graph, the `placement` by which it was partitioned adds the refusals of each device. `before` is an earlier
    page, or any object that a page can show: changes since then are marked. The file needs no network. Returns its path.

        report_page(model, "report.html", profile=model.profile())"""
    target = Path(check_path("report_page", path, WriteError))
    scene = collect(subject, profile, placement, timeline)
    if before is not None:
        scene = compared(read_page(before) if isinstance(before, (str, os.PathLike)) else collect(before), scene)
    write_text(target, scene_text(scene))
    return target


def page_text(subject: Subject, profile: Profile | None = None, placement: Placement | None = None) -> str:
    """Text of the page."""
    return scene_text(collect(subject, profile, placement))


def scene_text(scene: Scene) -> str:
    """Text of the page that shows this scene."""
    script, style = _built("app.js"), _built("app.css")
    policy = POLICY.format(script=_digest(script), style=_digest(style))
    return PAGE.format(
        policy=escape(policy),
        title=escape(_shown(f"{scene.title} · Partita")).encode("utf-8", "replace").decode(),
        style=style,
        scene=inert(_shown(scene.to_json(), "\\\\")),
        script=script,
        licences=_built("licences.txt").replace("--", "- -").strip(),
    )


def inert(json: str) -> str:
    """Equivalent JSON that cannot end a script element, open a comment, or break a line. Unpaired UTF-16 surrogates, which names
    may contain, are escaped, because a file cannot hold them."""
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda match: f"\\u{ord(match[0]):04x}", json)


def _shown(text: str, backslash: str = "\\") -> str:
    """The text with visible escapes for characters that change the direction of text, such as U+202E: a name with them would
    reverse the text around it."""
    return re.sub("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]", lambda match: f"{backslash}u{{{ord(match[0]):x}}}", text)


@cache
def _built(name: str) -> str:
    return files("partita.page").joinpath("built", name).read_text("utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
