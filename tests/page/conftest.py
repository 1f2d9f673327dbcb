"""A real browser, where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import partita as pt
from partita.accelerators.runtime.real_runs import Timeline
from partita.page.collect import Subject

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""What Chromium is called."""

WAY_OUT = "install one (make browser, or apt-get install chromium), or name it: CHROMIUM=/path/to/it"


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium without a window; tests that need it are skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the extra 'test' has it)")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with sync_api.sync_playwright() as playwright:
        try:
            result = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        except sync_api.Error as error:
            pytest.skip(f"no Chromium that starts: {str(error).splitlines()[0]}; {WAY_OUT}")
        yield result
        result.close()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Opens the page of a graph or model. What it asks of the network, logs or throws fails the test."""
    contexts = []
    troubles: list[str] = []

    def show(
        subject: Subject,
        profile: pt.Profile | None = None,
        before: Subject | None = None,
        timeline: Timeline | None = None,
        **options: Any,
    ) -> Any:
        path = pt.report_page(subject, tmp_path / "page.html", profile=profile, before=before, timeline=timeline)
        usual = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce"}
        contexts.append(browser.new_context(**{**usual, **options}))
        page = contexts[-1].new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("request", lambda request: request.url.startswith(("file:", "blob:", "data:")) or troubles.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield show
    for context in contexts:
        context.close()
    assert not troubles
