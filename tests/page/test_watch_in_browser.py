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
    page.get_by_text("forth ▶").locator("visible=true").click()
    assert lines()[0].startswith("10. ")
    for _ in range(2):
        page.get_by_text("◀ back").locator("visible=true").click()
    assert lines()[0].startswith("8. ") and coloured(rejected) == {"4", "7"}
    context.close()


def test_the_steps_play_by_themselves(browser: Any) -> None:
    steps = pt.watch(seed_example(), pt.ContainOpSelector())
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_content(steps._repr_mimebundle_()["text/html"])
    page.locator("label[for$=play]").click()

    def at(seconds: float) -> tuple[list[str], set[str]]:
        """The text that is seen and the boxes that are selected after so many seconds of playing."""
        page.evaluate(STOPPED_AT, 1000 * seconds)
        boxes = page.locator(".layered g").all()
        selected = {
            box.locator("text").last.text_content()
            for box in boxes
            if box.locator("rect").evaluate("e => getComputedStyle(e).fill") == "rgb(253, 191, 111)"
        }
        return [text.inner_text().split(" ")[0] for text in page.locator("p").all() if text.is_visible()], selected

    assert at(0.5) == (["1."], {"1"})
    assert at(5.5) == (["6."], {"1", "2", "3", "5", "6", "7"})
    assert at(9.5) == (["10."], {"1", "2", "3"})
    assert at(len(steps) + 1.5) == (["2."], {"1", "2"}), "it begins again"
    page.locator("label[for$=play]").click()
    assert [text.inner_text().split(" ")[0] for text in page.locator("p").all() if text.is_visible()] == ["1."]
    context.close()


STOPPED_AT = """ms => {
  for (const animation of document.getAnimations()) {
    animation.pause();
    animation.currentTime = ms;
  }
}"""
