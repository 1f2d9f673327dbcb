"""The page in a browser: what a click, a key, a search and a finger do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import partita as pt
from partita.page.collect import collect
from tests.graphs.pages import HOSTILE, long, small
from tests.insight.small_devices import device_of

Opened = Callable[..., Any]


def shown(page: Any) -> list[str]:
    """What is written in the boxes and on the open ones."""
    return sorted(page.locator(".picture .box .what, .picture .box .name, .picture .title").all_text_contents())


def gone(page: Any, selector: str, text: str = "") -> None:
    """Wait until no such element, or none with that text, is there. (The page's own policy forbids Playwright's way.)"""
    page.locator(selector, has_text=text).first.wait_for(state="detached")


def settled(page: Any) -> None:
    page.wait_for_selector(".stage[aria-busy=false]")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def box(page: Any, name: str) -> Any:
    return page.locator(".picture .box", has_text=name).first


def click_box(page: Any, name: str, **options: Any) -> None:
    """Click a box as a person does: with the mouse, where the box is drawn."""
    position = box(page, name).bounding_box()
    page.mouse.click(position["x"] + position["width"] / 2, position["y"] + position["height"] / 2, **options)


def selection(page: Any) -> str:
    return page.locator(".panel-body").inner_text()


def placed_by_two() -> pt.CompiledModel:
    graph = pt.apply_pass(small(), "InlineSubgraphs")
    placement = pt.query(graph, "HETERO:onnxruntime,reference")
    placement["pool"] = "reference"
    return pt.compile(placement.apply(graph), "HETERO:onnxruntime,reference")


def test_a_small_graph_is_shown_open(opened: Opened) -> None:
    page = opened(small())
    assert page.title() == "small · Partita"
    assert {"conv_0 · 2 ops", "conv_1 · 2 ops", "Conv", "conv1", "MaxPool", "pool"} <= set(shown(page))
    assert page.locator(".panel-body").inner_text().startswith("small\n\na partitioned graph")


def test_a_click_says_what_a_box_is(opened: Opened) -> None:
    page = opened(small())
    click_box(page, "conv2")
    said = selection(page)
    for part in ("Conv", "conv2", "conv_1", "pads = [1, 1, 1, 1]", "weight w: float32[3, 3, 3, 3]", "float32[1, 3, 4, 4]"):
        assert part in said
    assert page.locator(".chosen").count() == 1
    assert page.locator("[role=status]").inner_text() == "Conv conv2 on conv"


def test_a_click_on_a_border_says_why_it_is_there(opened: Opened) -> None:
    page = opened(small())
    assert page.locator(".wire.border").count() >= 2
    below, above = box(page, "pool").bounding_box(), box(page, "relu1").bounding_box()
    x = below["x"] + below["width"] / 2
    page.mouse.click(x, below["y"] - 8)
    said = selection(page)
    assert said.startswith("Border")
    assert "unsupported 'conv' does not take 'pool' (MaxPool)" in said.replace("\n", " ")
    assert "1 value, 768 B" in said
    assert above["y"] < below["y"]


def test_a_subgraph_closes_and_opens(opened: Opened) -> None:
    page = opened(small())
    title = page.locator(".picture .head", has_text="conv_0").bounding_box()
    page.mouse.click(title["x"] + 6, title["y"] + title["height"] / 2)
    gone(page, ".picture .box", "conv1")
    assert "conv_0" in shown(page) and "conv1" not in shown(page)
    click_box(page, "conv_0", click_count=2)
    box(page, "conv1").wait_for()
    page.get_by_role("button", name="Close all").click()
    settled(page)
    assert shown(page) == sorted(["x", "relu2", "conv_0", "2 ops", "conv_1", "2 ops", "MaxPool", "pool"])
    page.get_by_role("button", name="Open all").click()
    settled(page)
    assert "conv1" in shown(page)


def test_search_finds_what_is_hidden(opened: Opened) -> None:
    page = opened(long(1500))
    assert not any("op700" in text for text in shown(page))
    page.get_by_role("combobox").fill("op700")
    assert page.locator("[role=option]").first.inner_text().startswith("block14.op700")
    page.keyboard.press("Enter")
    page.wait_for_selector(".box.chosen")
    assert "block14.op700" in page.locator(".box.chosen").text_content()
    chosen, window = page.locator(".box.chosen").bounding_box(), page.locator(".stage").bounding_box()
    assert window["x"] < chosen["x"] < window["x"] + window["width"]
    assert window["y"] < chosen["y"] < window["y"] + window["height"]
    page.get_by_role("combobox").fill("no such node")
    assert page.locator(".found").inner_text() == "nothing found"


def test_a_key_counts_at_once_after_the_list_of_keys_is_closed(opened: Opened) -> None:
    """The closed list has the focus until the page is drawn again."""
    page = opened(small())
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    begun = page.evaluate(
        """() => {
            document.querySelector("dialog").close();
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "/", bubbles: true, cancelable: true }));
            return document.activeElement.tagName;
        }"""
    )
    assert begun == "INPUT"


def test_the_keyboard_alone_is_enough(opened: Opened) -> None:
    page = opened(small())
    page.keyboard.press("?")
    assert "to what reads from the chosen box" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    page.keyboard.press("/")
    page.wait_for_selector("input:focus")
    for key in (*"pool", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector(".box.chosen")
    page.keyboard.press("ArrowDown")
    assert page.locator("[role=status]").inner_text() == "Conv conv2 on conv"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.locator("[role=status]").inner_text() == "Relu relu1 on conv"
    page.keyboard.press("c")
    gone(page, ".picture .box", "conv1")
    assert page.locator("[role=status]").inner_text() == "conv_0 2 ops on conv"
    page.keyboard.press("Enter")
    box(page, "conv1").wait_for()
    page.keyboard.press("Escape")
    assert page.locator(".chosen").count() == 0
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_tabs_go_by_arrow_keys(opened: Opened) -> None:
    page = opened(small())
    page.get_by_role("tab", name="Overview").focus()
    page.keyboard.press("ArrowRight")
    assert page.get_by_role("tab", selected=True).inner_text() == "Subgraphs 2"
    page.keyboard.press("ArrowRight")
    page.locator("summary").click()
    assert "in no subgraph" in selection(page) and "MaxPool pool" in selection(page)
    page.get_by_role("button", name="MaxPool pool").click()
    assert page.get_by_role("tab", selected=True).inner_text() == "Selection"


def test_a_run_is_shown_on_the_boxes_and_as_a_flame(opened: Opened) -> None:
    model = placed_by_two()
    page = opened(model, model.profile())
    assert page.locator(".flame .bar").count() >= 4
    assert page.locator(".picture .heat").count() >= 3
    page.keyboard.press("p")
    gone(page, ".picture .heat")
    page.locator(".flame .bar", has_text="reference_1").first.click()
    assert "took" in selection(page) and "reference" in selection(page)
    page.get_by_role("tab", name="Refusals").click()
    assert "not on onnxruntime" in selection(page)
    page.get_by_role("tab", name="Overview").click()
    assert "onnxruntime → reference" in selection(page) and "768 B" in selection(page)


def test_real_calls_lie_in_lanes_and_overlap(opened: Opened) -> None:
    """Two requests meet on the first device; the lanes are those of devices, or of threads when asked."""
    together = threading.Barrier(2, timeout=300)

    def meeting(node: pt.Node, inputs: Any) -> Any:
        together.wait()
        return [np.exp(inputs[0])]

    x = pt.variable("x", "float32", (2, 4))
    graph = pt.Graph([pt.op("Tanh", pt.op("Exp", x, name="a"), name="b")], name="chain")
    with device_of(meeting, "Exp") as device:
        model = pt.compile(graph, f"HETERO:{device},reference", {"HETERO": {"NUM_REQUESTS": 2}}, forbid={"b": device})
        model.units[0].compiled.concurrent = True
        with model.timeline() as timeline:
            for future in [model.start(np.ones((2, 4), np.float32)) for _ in range(2)]:
                future.result()
        page = opened(model, timeline=timeline)
    real = page.locator(".timeline.real")
    assert real.locator("strong").inner_text().startswith("Real calls: 2 calls in ")
    assert real.locator(".lane").all_text_contents() == ["smallsmall", "referencereference"]
    bars = [real.locator(".bar", has_text=f"#{number} small_0").first.bounding_box() for number in (1, 2)]
    first, second = sorted(bars, key=lambda bar: bar["x"])
    assert second["x"] < first["x"] + first["width"] and second["y"] != first["y"]
    assert real.locator(".handover").count() == len(timeline.handovers) == 2
    real.get_by_role("button", name="By thread").click()
    lanes = sorted(text[: len(text) // 2] for text in real.locator(".lane").all_text_contents())
    assert lanes == ["partita-request", "partita-request #2"]
    real.locator(".bar", has_text="small_0").first.click()
    assert "small_0" in selection(page)
    real.locator(".bar", has_text="small_0").first.dblclick()
    page.get_by_role("button", name="All calls").click()
    assert real.locator(".bar").count() >= 2


def test_what_was_recorded_has_a_page_of_its_own(opened: Opened) -> None:
    x, y = pt.variable("x", "float32", (4,)), pt.variable("y", "float32", (4,))
    graph = pt.Graph([pt.op("Neg", pt.op("Div", x, y, name="ratio"), name="neg")], name="ratio", output_names=["z"])
    config = {"HETERO": {"RECORD": "checksums"}}
    model = pt.compile(graph, "HETERO:onnxruntime,reference", config, forbid={"Neg": "onnxruntime"})
    model(np.array([0, 1, 2, 3], np.float32), np.zeros(4, np.float32))
    page = opened(model)
    page.get_by_role("tab", name="Recorded 2 odd").click()
    text = selection(page)
    assert "checksums: 1 of 1 call looked at: odd" in text
    assert "ratio of onnxruntime_0" in text.replace("\n", " ")
    assert "onnxruntime · 1 call · 1 NaN and 3 infinite, first in call 1 · checksum " in text
    page.locator(".recorded .link", has_text="reference_1").first.click()
    assert "reference_1" in selection(page)


def test_samples_that_are_wrong_are_on_the_page(opened: Opened) -> None:
    with device_of(lambda node, inputs: [np.maximum(inputs[0], 0) * np.float32(1.5)], "Relu") as device:
        x = pt.variable("x", "float32", (4,))
        model = pt.compile(pt.Graph([pt.op("Relu", x, name="relu")], name="net"), device, {"RECORD": "sample:1"})
        model(np.ones(4, np.float32))
        page = opened(model)
    page.get_by_role("tab", name="Recorded 1 odd").click()
    assert "small · call 1 · wrong: error 5.0e-01" in selection(page)


def test_names_in_a_hostile_model_run_nothing(opened: Opened) -> None:
    page = opened(small(hostile=True))
    page.keyboard.press("/")
    page.get_by_role("combobox").fill("onerror")
    page.keyboard.press("Enter")
    page.wait_for_selector(".box.chosen")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert HOSTILE.split("\u2028", maxsplit=1)[0].strip() in page.locator(".panel-body").text_content()
    assert page.locator("header h1").text_content() == HOSTILE


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_and_light_follow_the_system_and_can_be_read(opened: Opened, scheme: str) -> None:
    page = opened(small(), color_scheme=scheme)
    brightness = page.evaluate(CONTRAST)
    assert (brightness["ground"] < 0.2) == (scheme == "dark")
    assert min(brightness["contrasts"].values()) >= 4.5, brightness


CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const linear = c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = colour => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = canvas.getImageData(0, 0, 1, 1).data;
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const of = (selector, property) => light(getComputedStyle(document.querySelector(selector))[property]);
  const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return { ground: of('body', 'backgroundColor'), contrasts: {
    text: contrast(of('body', 'color'), of('body', 'backgroundColor')),
    box: contrast(of('.box.p0 .what', 'fill'), of('.box.p0 .face', 'fill')),
    name: contrast(of('.box.p0 .name', 'fill'), of('.box.p0 .face', 'fill')),
    muted: contrast(of('.panel .muted', 'color'), of('.panel', 'backgroundColor')),
    title: contrast(of('.title', 'fill'), of('.frame .face', 'fill')),
  } };
}"""


def test_on_a_phone_everything_is_within_reach(opened: Opened) -> None:
    page = opened(small(), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    stage, panel = page.locator(".stage").bounding_box(), page.locator(".panel").bounding_box()
    assert stage["height"] > 300 and panel["y"] >= stage["y"] + stage["height"] - 1
    position = box(page, "pool").bounding_box()
    page.touchscreen.tap(position["x"] + position["width"] / 2, position["y"] + position["height"] / 2)
    assert "MaxPool" in selection(page)
    assert min(b["height"] for b in (e.bounding_box() for e in page.locator(".tools button").all())) >= 30


def seconds_of_main_thread(page: Any, act: Callable[[], None]) -> float:
    """The processor time that the page's main thread takes for it, which does not depend on what else the machine does."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    before = spent()
    act()
    return spent() - before


MOST_SECONDS = 0.5
"""For one answer; drawn once, five thousand boxes take a fifth of it."""


STEPS = 10
"""In how many pictures at the least somebody would look at what is found, and go there and back."""


def find_and_zoom(page: Any) -> None:
    page.keyboard.press("/")
    page.get_by_role("combobox").fill("op4321")
    page.keyboard.press("Enter")
    page.wait_for_selector(".box.chosen")
    page.mouse.move(500, 400)
    for _ in range(20):
        page.mouse.wheel(0, 60)
    for _ in range(20):
        page.mouse.wheel(0, -60)
    settled(page)


def test_five_thousand_nodes_stay_quick(opened: Opened) -> None:
    page = opened(long(5000))
    assert page.locator(".picture .box").count() < 150
    assert seconds_of_main_thread(page, lambda: find_and_zoom(page)) < STEPS * MOST_SECONDS
    assert page.locator(".picture .box").count() < 600


@pytest.mark.slow
def test_all_of_five_thousand_nodes_open_at_once(opened: Opened) -> None:
    page = opened(long(5000))

    def open_all() -> None:
        page.get_by_role("button", name="Open all").click()
        settled(page)

    assert len(page.workers) == 1, "the layout is a worker's"
    assert seconds_of_main_thread(page, open_all) < MOST_SECONDS
    assert page.locator(".picture.is-far").count() == 1
    assert seconds_of_main_thread(page, lambda: find_and_zoom(page)) < STEPS * MOST_SECONDS
    assert "block86.op4321" in page.locator(".box.chosen").text_content()


def test_names_and_roles_for_those_who_do_not_see_it(opened: Opened) -> None:
    page = opened(small())
    assert page.locator("html").get_attribute("lang") == "en"
    for role in ("application", "toolbar", "tablist", "tabpanel", "status"):
        assert page.get_by_role(role).count() == 1, role
    for button in page.get_by_role("button").all():
        assert (button.get_attribute("aria-label") or button.inner_text()).strip()
    assert page.locator(".picture").get_attribute("aria-label").startswith("Graph. Arrow keys")


def forked(seed: int, devices: list[str], ops: int = 16) -> tuple[pt.Graph, pt.Costs]:
    """Random ops on values of the last few, with random costs; some do not run everywhere."""
    rng = np.random.default_rng(seed)
    values: list[Any] = [pt.variable("x", "float32", (8,))]
    for i in range(ops):
        first, second = (values[int(rng.integers(max(0, len(values) - 4), len(values)))] for _ in range(2))
        values.append(pt.op("Add", first, second, name=f"add{i:02d}"))
    graph = pt.Graph(values[-3:], name="net")
    times = {
        device: {f"add{i:02d}": float(rng.integers(1, 60)) for i in range(ops) if not number or rng.random() < 0.9}
        for number, device in enumerate(devices)
    }
    pairs = [(a, b) for a in devices for b in devices if a != b]
    return graph, pt.Costs(times, {pair: pt.HandOver(float(rng.integers(1, 25))) for pair in pairs})


PLANNED_AGAIN: list[tuple[int, list[str]]] = [
    (0, ["onnxruntime", "reference"]), (1, ["onnxruntime", "reference"]), (2, ["onnxruntime", "reference", "cpu"]),
]


def test_another_device_plans_again_as_python_does(opened: Opened) -> None:
    """Each op is moved in turn, so that choices add up; on two devices the costs are the least ones."""
    for seed, devices in PLANNED_AGAIN:
        graph, costs = forked(seed, devices)
        names = "HETERO:" + ",".join(devices)
        placement = pt.place(graph, names, costs=costs)
        page, pin = opened(placement), dict[str, str]()
        shown = page.locator(".replan strong")
        assert float(shown.get_attribute("data-cost")) == pytest.approx(placement.certificate.predicted_us)
        assert int(shown.get_attribute("data-cut")) == len(placement.certificate.cut)
        page.get_by_role("button", name="Open all").click()
        for name, other in [(name, devices[1 - devices.index(placement[name]) % 2]) for name in list(placement)[:16:4]]:
            if name not in costs.times[other]:
                continue
            page.locator("input[type=search]").fill(name)
            page.keyboard.press("Enter")
            page.locator(f".details dd:text-is('{name}')").wait_for()
            page.locator(".details select").select_option(str(devices.index(other)))
            pin[name] = other
            least = pt.place(graph, names, costs=costs, pin=pin).certificate
            cost = float(shown.get_attribute("data-cost"))
            assert cost == pytest.approx(least.predicted_us, rel=1e-9 if len(devices) == 2 else 0.1), (seed, pin)
            assert cost >= least.predicted_us * (1 - 1e-9)
            assert f"by hand; {placement.certificate.predicted_us:,.1f} µs before" in page.locator(".replan").inner_text()
            assert page.locator(f".details dd:text-is('{other}')").count() == 1
        page.get_by_role("button", name="As it was").click()
        assert float(shown.get_attribute("data-cost")) == pytest.approx(placement.certificate.predicted_us)


def test_another_device_for_a_group_plans_again_as_python_does(opened: Opened) -> None:
    """A group has the devices that run all of its ops; "the cheapest" takes its choice back."""
    names = "HETERO:onnxruntime,reference"
    graph, costs = forked(3, ["onnxruntime", "reference"], 60)
    placement = pt.place(graph, names, costs=costs)
    items, page = collect(placement).items, opened(placement)
    inside: dict[int, list[str]] = {}
    for item in items:
        if item.kind == "op" and item.parent >= 0 and item.owner == "reference":
            inside.setdefault(item.parent, []).append(item.name)
    groups = [group for group, ops in inside.items() if len(ops) > 2][:2]
    assert len(groups) == 2
    shown, pin = page.locator(".replan strong"), dict[str, str]()
    for group, ops in [(group, inside[group]) for group in groups]:
        page.locator("input[type=search]").fill(items[group].name)
        page.keyboard.press("Enter")
        page.locator(f".details h2:text-is('{items[group].name}')").wait_for()
        able = [label for label in costs.times if all(op in costs.times[label] for op in ops)]
        offered = page.locator(".details select option").all_text_contents()
        assert [text.partition(":")[0] for text in offered] == ["the cheapest", *able]
        before = float(shown.get_attribute("data-cost"))
        page.locator(".details select").select_option("0")
        pin |= dict.fromkeys(ops, "onnxruntime")
        least = pt.place(graph, names, costs=costs, pin=pin).certificate
        assert float(shown.get_attribute("data-cost")) == pytest.approx(least.predicted_us)
        assert least.predicted_us > before
        assert f"the optimum with {len(pin)} ops by hand" in page.locator(".replan").inner_text()
        assert page.locator(".details dd:text-is('onnxruntime')").count() == 1
    page.locator(".details select").select_option("-1")
    assert float(shown.get_attribute("data-cost")) == pytest.approx(before)
