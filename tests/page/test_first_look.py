"""What a reader sees and does first: text that can be read, bars on one scale, colours that differ, a link, a picture to keep."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import partita as pt
from tests.graphs.pages import HOSTILE, long, small

Opened = Callable[..., Any]

SIZES = [(390, 844), (1280, 800), (1920, 1080)]


def measured(ops: int) -> tuple[pt.CompiledModel, pt.Profile]:
    """Pools on another device than the rest, after a run."""
    graph = pt.apply_pass(long(ops), "InlineSubgraphs")
    placement = pt.query(graph, "HETERO:onnxruntime,reference")
    for name in placement:
        placement[name] = "reference" if graph[name].op == "MaxPool" else "onnxruntime"
    model = pt.compile(placement.apply(graph), "HETERO:onnxruntime,reference")
    return model, model.profile()


def scene_of(page: Any) -> Any:
    return json.loads(page.locator("#scene").text_content())


def texts_of(scene: Any, field: str) -> list[str]:
    return [scene["texts"][number] for number in scene["items"][field]]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: str(size[0]))
@pytest.mark.thinned(2)
def test_a_model_of_many_nodes_can_be_read_at_once(opened: Opened, size: tuple[int, int]) -> None:
    model, profile = measured(90)
    page = opened(model, profile, viewport={"width": size[0], "height": size[1]})
    assert page.locator(".picture .frame[data-box]").count() == 0, "subgraphs are closed"
    boxes = page.locator(".picture .box.call")
    assert boxes.count() >= 4
    names = boxes.locator(".name").all_text_contents()
    assert all(" op" in name and (" µs" in name or " ms" in name) for name in names), "with their times"
    assert page.evaluate(SMALLEST_LETTERS) >= 9


SMALLEST_LETTERS = """() => {
  const scale = new DOMMatrix(getComputedStyle(document.querySelector('.picture > g')).transform).a
    || document.querySelector('.picture > g').getCTM().a;
  return Math.min(...[...document.querySelectorAll('.picture text')].map(e => parseFloat(getComputedStyle(e).fontSize) * scale));
}"""


def test_bars_in_boxes_are_on_one_scale_and_none_is_cut(opened: Opened) -> None:
    model, profile = measured(40)
    page = opened(model, profile)
    page.get_by_role("button", name="Close all").click()
    page.wait_for_selector(".stage[aria-busy=false]")
    scene = scene_of(page)

    def lengths() -> dict[int, float]:
        bars = page.locator(".picture .box .heat").all()
        return {int(bar.evaluate("e => e.parentNode.dataset.box")): float(bar.get_attribute("width")) for bar in bars}

    beds = {float(bed.get_attribute("width")) for bed in page.locator(".picture .heat-bed").all()}
    assert len(beds) == 1, "the same length stands for the same time in every box"
    (whole,) = beds
    for _ in range(2):
        taken = {box: scene["items"]["us"][box] for box in lengths()}
        most = max(taken.values())
        for box, length in lengths().items():
            assert length == pytest.approx(max(1, whole * taken[box] / most), rel=0.01)
        page.get_by_role("tab", name="Overview").click()
        assert "time; a whole bar is" in page.locator(".legend").inner_text()
        page.get_by_role("button", name="Open all").click()
        page.wait_for_selector(".picture .frame[data-box]")


@pytest.mark.parametrize("ops", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_edges_go_around_titles(opened: Opened, ops: int) -> None:
    page = opened(small() if ops == 5 else long(ops))
    page.get_by_role("button", name="Open all").click()
    page.wait_for_selector(".picture .frame[data-box]")
    page.wait_for_selector(".stage[aria-busy=false]")
    crossed = page.evaluate(CROSSED_TITLES)
    assert crossed["titles"] >= 2 and crossed["wires"] >= 5
    assert crossed["found"] == []


CROSSED_TITLES = """() => {
  const titles = [...document.querySelectorAll('.picture .title')];
  const wires = [...document.querySelectorAll('.picture .wire[data-from]')];
  const found = [];
  for (const title of titles) {
    const box = title.getBoundingClientRect();
    for (const wire of wires) {
      const matrix = wire.getScreenCTM();
      for (let at = 0; at <= wire.getTotalLength(); at += 2) {
        const { x, y } = wire.getPointAtLength(at).matrixTransform(matrix);
        if (x > box.left && x < box.right && y > box.top && y < box.bottom) {
          found.push(`${title.textContent}: ${wire.dataset.from} -> ${wire.dataset.to}`);
          break;
        }
      }
    }
  }
  return { titles: titles.length, wires: wires.length, found };
}"""


def test_search_finds_what_the_page_writes(opened: Opened) -> None:
    graph = pt.apply_pass(small(), "InlineSubgraphs")
    model = pt.compile(graph, "cpu")
    page = opened(model, model.profile())
    page.get_by_role("button", name="Open all").click()
    page.wait_for_selector(".stage[aria-busy=false]")
    scene = scene_of(page)
    names, labels = texts_of(scene, "name"), texts_of(scene, "label")
    written = {f"{label} {name}": i for i, (label, name) in enumerate(zip(labels, names)) if name in ("conv1", "relu2", "pool")}
    heads = page.locator(".picture .head")
    boxes = page.locator(".picture .frame[data-box]")
    written |= {heads.nth(i).text_content(): int(boxes.nth(i).get_attribute("data-box")) for i in reversed(range(heads.count()))}
    written |= {"relu2 cpu": names.index("relu2"), "POOL  maxpool": names.index("pool")}
    assert len(written) >= 6
    for text, box in written.items():
        page.get_by_role("combobox").fill(text)
        assert page.locator("[role=option]").count(), text
        offered = [int(option.get_attribute("data-box")) for option in page.locator("[role=option]").all()]
        assert offered[0] == box, text
    for text in page.locator(".flame .bar title").all_text_contents()[2:]:
        page.get_by_role("combobox").fill(text.rsplit(" ", 2)[0])
        assert page.locator("[role=option]").count(), text


def test_what_is_read_and_what_is_heard_agree(opened: Opened) -> None:
    model, profile = measured(20)
    page = opened(model, profile)
    for button in page.get_by_role("button").all():
        heard = button.get_attribute("aria-label") or button.inner_text()
        assert button.inner_text().lower() in heard.lower()
        assert button.inner_text().strip()
    page.get_by_role("button", name="Close all").click()
    page.wait_for_selector(".stage[aria-busy=false]")
    for box in page.locator(".picture .box[data-box]").all():
        heard = box.locator("title").text_content()
        for line in box.locator("text").all_text_contents():
            assert all(part.strip() in heard for part in line.replace("…", "·").split("·")), (line, heard)


def test_nothing_lies_beyond_the_edge_of_a_phone(opened: Opened) -> None:
    model, profile = measured(40)
    page = opened(model, profile, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    for tab in page.get_by_role("tab").all():
        tab.click()
        assert page.evaluate(BEYOND) == []
    page.get_by_role("combobox").fill("op")
    assert page.evaluate(BEYOND) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Help").click()
    assert page.evaluate(BEYOND) == []


BEYOND = """() => [...document.querySelectorAll('body *')].filter(e => {
  if (e.closest('.picture, .flame, .spoken, script, noscript')) return false;
  const { left, right, width } = e.getBoundingClientRect();
  return width > 0 && (left < -0.5 || right > innerWidth + 0.5 || (e.scrollWidth > e.clientWidth + 1
    && getComputedStyle(e).overflowX !== 'visible' && getComputedStyle(e).textOverflow !== 'ellipsis'));
}).map(e => e.outerHTML.slice(0, 80))"""


def placed_on(devices: int) -> pt.Graph:
    """A chain of which each op is on another device."""
    value = pt.variable("x", "float32", (2,))
    for i in range(devices):
        value = pt.op("Relu", value, name=f"op{i}")
        value.affinity = f"device{i}"
    return pt.apply_pass(pt.Graph([value], name="many"), "PartitionGraph", subgraph_property=pt.AffinityProperty())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_two_devices_look_the_same(opened: Opened, scheme: str) -> None:
    page = opened(placed_on(30), color_scheme=scheme)
    looks = page.evaluate(LOOKS)
    assert len(looks) == 30 and len(set(looks)) == 30
    assert all(look.endswith("none") for look in looks[:8]) and not any(look.endswith("none") for look in looks[8:])
    marked = page.locator(".picture .box.m1 .mark").first
    assert marked.get_attribute("fill") == "url(#m1)"


LOOKS = """() => [...document.querySelectorAll('.legend .swatch')].map(e =>
  `${getComputedStyle(e.querySelector('.ground')).fill} ${e.querySelector('.mark')?.getAttribute('fill') ?? 'none'}`)"""


def test_a_link_leads_to_a_node(opened: Opened) -> None:
    page = opened(long(200))
    plain = page.url
    page.goto(f"{plain}#node=block2.op101")
    page.wait_for_selector(".box.chosen")
    assert "block2.op101" in page.locator(".box.chosen").text_content()
    page.reload()
    page.wait_for_selector(".box.chosen")
    assert "block2.op101" in page.locator(".panel-body").inner_text()
    page.evaluate("location.hash = '#node=block1.op50'")
    page.locator(".box.chosen", has_text="block1.op50").wait_for()
    page.keyboard.press("ArrowDown")
    assert page.url.endswith("#node=block1.op51"), "the address follows what is chosen"
    assert page.get_by_role("link").get_attribute("href") == "#node=block1.op51"
    page.goto(f"{plain}#node=nothing%20like%20it")
    assert page.locator(".found").inner_text() == "nothing found"
    page.goto(f"{plain}#box=99999999")
    page.goto(f"{plain}#node=%E0%A4%A")


def test_a_page_inside_another_works_without_an_address(opened: Opened) -> None:
    """As notebooks show it: in a frame whose text is given, where no address may be set."""
    page = opened(small())
    text = Path(page.url.removeprefix("file://")).read_text("utf-8")
    outer = page.context.new_page()
    troubles: list[str] = []
    outer.on("pageerror", lambda error: troubles.append(str(error)))
    outer.set_content("<iframe width=1000 height=700 sandbox='allow-scripts'></iframe>")
    outer.evaluate("text => { document.querySelector('iframe').srcdoc = text; }", text)
    frame = outer.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for()
    frame.get_by_role("combobox").fill("pool")
    frame.get_by_role("combobox").press("Enter")
    frame.locator(".box.chosen").wait_for()
    assert "MaxPool" in frame.locator(".panel-body").inner_text()
    assert troubles == []


def test_a_link_to_a_hostile_name_is_text(opened: Opened) -> None:
    page = opened(small(hostile=True))
    page.keyboard.press("/")
    page.get_by_role("combobox").fill("onerror")
    page.keyboard.press("Enter")
    page.wait_for_selector(".box.chosen")
    page.reload()
    page.wait_for_selector(".box.chosen")
    assert page.locator("header h1").text_content() == HOSTILE
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_view_is_kept_as_svg(opened: Opened, scheme: str) -> None:
    page = opened(small(), color_scheme=scheme, viewport={"width": 1000, "height": 700})
    with page.expect_download() as saved:
        page.get_by_role("button", name="SVG").click()
    assert saved.value.suggested_filename == "small.svg"
    text = saved.value.path().read_text("utf-8")
    root = ElementTree.fromstring(text)
    assert float(root.get("width", 0)) == page.locator(".picture").bounding_box()["width"]
    words = ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Conv", "conv1", "conv_0 · 2 ops"} <= set(words)
    assert not any(part in text for part in ("var(", "oklch", "light-dark", "class=", "<script", "context-"))
    fills = {element.get("fill") for element in root.iter("{http://www.w3.org/2000/svg}rect")}
    assert len(fills) >= 3 and all(fill and fill.startswith("rgb") for fill in fills)


def test_the_view_is_kept_as_png(opened: Opened) -> None:
    page = opened(placed_on(12), viewport={"width": 1000, "height": 700})
    with page.expect_download() as saved:
        page.keyboard.press("g")
    assert saved.value.suggested_filename == "many.png"
    image = Image.open(io.BytesIO(saved.value.path().read_bytes())).convert("RGB")
    stage = page.locator(".picture").bounding_box()
    assert image.size == (round(2 * stage["width"]), round(2 * stage["height"]))
    seen = Image.open(io.BytesIO(page.locator(".picture").screenshot())).convert("RGB").resize(image.size)
    differing = np.abs(np.asarray(image, int) - np.asarray(seen, int)).max(axis=2) > 60
    assert differing.mean() < 0.05, "it looks as the page does"
    assert len(image.getcolors(maxcolors=1 << 20) or ()) > 20
