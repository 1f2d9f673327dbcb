// What the recorder saw while the model was at work: odd values first.

import { link, shortList } from "./details";
import { h } from "./dom";
import type { State } from "./state";
import { count } from "./words";

type Go = (box: number) => void;

interface Entry { item: number; name: string; facts: string; isOdd: boolean }

function entriesOf(state: State): Entry[] {
  const { seen, probes } = state.scene;
  const values = seen.map((one) => {
    const isOdd = one.nans + one.infinities > 0;
    const odd = isOdd ? `${one.nans} NaN and ${one.infinities} infinite, first in call ${one.first}` : "";
    const range = one.low ? `${one.low} to ${one.high}` : "";
    const facts = [one.owner, count(one.calls, "call"), odd, range, one.checksum && `checksum ${one.checksum}`];
    return { item: one.item, name: one.name, facts: facts.filter(Boolean).join(" · "), isOdd };
  });
  const samples = probes.map(({ item, name, owner, call, text, is_ok }) => (
    { item, name, facts: `${owner} · call ${call} · ${is_ok ? "error" : "wrong: error"} ${text}`, isOdd: !is_ok }));
  return [...values, ...samples].sort((a, b) => Number(b.isOdd) - Number(a.isOdd));
}

export const oddOnes = (state: State): number => entriesOf(state).filter((entry) => entry.isOdd).length;

export function recordedPage(state: State, go: Go): HTMLElement {
  const entries = entriesOf(state).map(({ item, name, facts, isOdd }) => () => h("div", { class: isOdd ? "seen odd" : "seen" },
    h("code", {}, name), item >= 0 ? " of " : null, item >= 0 ? link(state, item, go) : null, h("div", { class: "muted" }, facts)));
  return h("section", { class: "recorded" }, h("h2", {}, "Recorded at work"), h("p", { class: "muted" }, state.scene.recorded), shortList(entries, 60));
}
