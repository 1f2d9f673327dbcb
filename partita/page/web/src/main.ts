// The page: what Python put into it is read, laid out on another thread, drawn, and explained.

import { read } from "./data";
import { button, h } from "./dom";
import { Facts } from "./facts";
import { helpDialog, listen, type Command } from "./keys";
import { address, Links } from "./link";
import { Panel } from "./panel";
import { View } from "./picture";
import { RealRuns } from "./runs";
import { savePng, saveSvg } from "./saving";
import { Search } from "./search";
import { spoken } from "./shapes";
import { State } from "./state";
import { startTheme, switchTheme } from "./theme";
import { Timeline } from "./timeline";
import { next, type Way } from "./walking";
import { serve } from "./worker";

async function start(): Promise<void> {
  startTheme();
  const scene = read(document.getElementById("scene")!.textContent!);
  const facts = new Facts(scene);
  const stage = h("div", { class: "stage" });
  const state = new State(scene, () => (stage.clientWidth || 1) / (stage.clientHeight || 1));
  const view = new View(state, facts.isBorder);
  const status = h("div", { class: "spoken", role: "status", "aria-live": "polite" });
  const go = (box: number) => void state.reveal(box).then(() => view.goTo(box));
  const search = new Search(state, go);
  const links = new Links(scene);
  const panel = new Panel(state, facts, links, go);

  const busy = async (change: () => Promise<void>, look: () => void) => {
    stage.setAttribute("aria-busy", "true");
    await change();
    look();
    view.camera.flush();
    stage.setAttribute("aria-busy", "false");
  };
  const chosen = () => (state.choice && "box" in state.choice ? state.choice.box : -1);
  const walk = (way: Way) => () => {
    const box = next(state, way);
    if (box === undefined) return;
    state.choose({ box });
    const placed = view.placed(box);
    if (placed) view.camera.fly(placed.x + placed.width / 2, placed.y + Math.min(placed.height, 300) / 2, Math.max(view.camera.view.scale, 0.5));
  };
  const openAll = () => void busy(() => state.openAll(), () => view.fit());
  const closeAll = () => void busy(() => state.closeAll(), () => view.fit());
  const heat = () => state.setHeat(!state.heat);
  const side = () => document.body.classList.toggle("without-panel");
  const commands: Command[] = [
    { keys: ["/"], shown: "/", does: "search", act: () => search.begin() },
    { keys: ["ArrowUp"], shown: "↑", does: "to what the chosen box reads from", act: walk("up") },
    { keys: ["ArrowDown"], shown: "↓", does: "to what reads from the chosen box", act: walk("down") },
    { keys: ["ArrowLeft"], shown: "←", does: "to the box on the left", act: walk("left") },
    { keys: ["ArrowRight"], shown: "→", does: "to the box on the right", act: walk("right") },
    { keys: ["Enter", " "], shown: "Enter", does: "open or close the chosen box", act: () => chosen() >= 0 && void view.toggle(chosen()) },
    { keys: ["e"], shown: "e", does: "open everything", act: openAll },
    { keys: ["c"], shown: "c", does: "close everything", act: closeAll },
    { keys: ["f", "0"], shown: "f", does: "show the whole graph", act: () => view.fit() },
    { keys: ["+", "="], shown: "+", does: "closer", act: () => view.camera.zoom(1.3) },
    { keys: ["-"], shown: "−", does: "farther", act: () => view.camera.zoom(1 / 1.3) },
    ...(scene.bars.length ? [{ keys: ["p"], shown: "p", does: "times on the boxes, on or off", act: heat }] : []),
    { keys: ["v"], shown: "v", does: "save the view as SVG", act: () => saveSvg(view.svg, scene.title) },
    { keys: ["g"], shown: "g", does: "save the view as PNG", act: () => void savePng(view.svg, scene.title) },
    { keys: ["s"], shown: "s", does: "hide or show the panel", act: side },
    { keys: ["t"], shown: "t", does: "dark or light", act: switchTheme },
    { keys: ["Escape"], shown: "Esc", does: "choose nothing", act: () => state.choose(null) },
    { keys: ["?"], shown: "?", does: "this list", act: () => help.showModal() },
  ];
  const help = helpDialog(commands);
  listen(commands);

  const tools = h("div", { class: "tools", role: "toolbar", "aria-label": "View" },
    button("Fit", "Show the whole graph (f)", () => view.fit()),
    button("Open all", "Open everything (e)", openAll), button("Close all", "Close everything (c)", closeAll),
    scene.bars.length ? button("Times", "Times on the boxes, on or off (p)", heat, { class: "times" }) : null,
    button("Panel", "Hide or show the panel (s)", side),
    button("SVG", "Save the view as SVG (v)", () => saveSvg(view.svg, scene.title)), button("PNG", "Save the view as PNG (g)", () => void savePng(view.svg, scene.title)),
    button("Theme", "Dark or light (t)", switchTheme), button("Help", "List of keys (?)", () => help.showModal()));
  const head = h("header", {}, h("div", { class: "brand" }, h("h1", {}, scene.title), h("span", { class: "muted" }, scene.subtitle)), search.element, tools);
  stage.append(view.svg);
  const main = h("main", {}, stage, panel.element);
  document.body.append(head, main, ...(scene.bars.length ? [new Timeline(state, go).element] : []), ...(scene.laps.length ? [new RealRuns(state, go).element] : []), status, help);
  state.on("choice", () => {
    const box = chosen();
    if (box < 0) return;
    status.textContent = spoken(scene.items[box]);
    address(links.of(box));
  });
  const follow = () => {
    const asked = links.asked(location.hash);
    if (typeof asked === "number" && asked !== chosen()) go(asked);
    else if (typeof asked === "string") search.ask(asked);
  };
  addEventListener("hashchange", follow);
  await busy(() => state.layOut(), () => view.begin());
  follow();
  document.documentElement.dataset.ready = "true";
}

if (typeof document === "undefined") serve();
else void start();
