// What each key does, and the page that lists them.

import { button, h } from "./dom";

export interface Command { keys: string[]; shown: string; does: string; act: () => void }

export function listen(commands: Command[]): void {
  const byKey = new Map(commands.flatMap((command) => command.keys.map((key) => [key, command] as const)));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (target.closest("input, dialog[open]")) return;
    const ours = target.closest("button, summary, a, .panel-body");
    if (ours && (["Enter", " "].includes(event.key) || event.key.startsWith("Arrow"))) return;
    const command = byKey.get(event.key);
    if (!command) return;
    event.preventDefault();
    command.act();
  });
}

/** The list of keys, as a dialog that is closed at first. */
export function helpDialog(commands: Command[]): HTMLDialogElement {
  const rows = commands.map(({ shown, does }) => h("tr", {}, h("td", {}, h("kbd", {}, shown)), h("td", {}, does)));
  const dialog = h("dialog", { class: "help", "aria-label": "Keys" }, h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, ...rows)),
    h("p", { class: "muted" }, "Drag to move, wheel or pinch to zoom, click to choose, double click to open and close. Click a dashed edge to learn why a subgraph ends there."));
  dialog.append(button("Close", "Close this list", () => dialog.close(), { class: "wide" }));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
