"""What `watch` shows in a notebook, stepped through in a browser: it has no program in it, styles do the work."""

from __future__ import annotations

from typing import Any

import partita as pt
from tests.partition.test_watching import seed_example


def test_a_step_is_chosen_by_click_and_by_key(browser: Any) -> None:
    steps = pt.watch(seed_example(), pt.ContainOpSelector())
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(steps._repr_mimebundle_()["text/html"])

    def lines() -> list[str]:
        return [text.inner_text() for text in page.locator("p").all() if text.is_visible()]

    def coloured(colour: str) -> set[str]:
        boxes = page.locator(".layered g").all()
        fills = {box.locator("text").last.text_content(): box.locator("rect") for box in boxes}
        return {name for name, rect in fills.items() if rect.evaluate("e => getComputedStyle(e).fill") == colour}

    selected, rejected = "rgb(253, 191, 111)", "rgb(251, 154, 153)"
    assert lines() == ["1. root 1\nselected {1} · rejected {}"]
    assert coloured(selected) == {"1"} and not coloured(rejected)
    page.locator("label", has_text="8").first.click()
    assert lines() == [
        "8. a path leaves and comes back through a rejected node: roll back 7\nselected {1, 2, 3, 5, 6} · rejected {4, 7}"
    ]
    assert coloured(selected) == {"1", "2", "3", "5", "6"} and coloured(rejected) == {"4", "7"}
    page.keyboard.press("ArrowRight")
    assert lines()[0].startswith("9. ")
    context.close()
