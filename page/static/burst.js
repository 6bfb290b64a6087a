// A burst of services: which services waited, whose trainers were evicted, seconds by stage.

import { h } from "./dom.js";
import { age, count, counted, duration, moment } from "./format.js";
import { jobLink, STAGES, stageBar, total } from "./parts.js";

/** Fills a list item with the short form of a burst. */
export function burstItem(element, burst, longest, now) {
  const state = JSON.stringify([burst.until, burst.over, burst.text, longest, age(burst.since, now)]);
  if (element.shownText === state) return;
  element.shownText = state;
  const hadFocus = element.contains(document.activeElement);
  const asked = counted(total(burst.services), "service");
  const gave = counted(total(burst.trainers), "trainer");
  element.className = "burst";
  element.replaceChildren(
    h("div", { class: "line" }, h("a", { href: `#/reclaims/${encodeURIComponent(burst.id)}`, class: "name" }, `${asked} took ${gave}`),
      h("span", { class: "soft when", title: moment(burst.since) }, burst.over ? `${age(burst.since, now)} ago` : "ongoing")),
    h("div", { class: "cell-bar wide-bar" }, stageBar(burst, longest), h("span", { class: "figures" }, stageWords(burst))),
  );
  if (hadFocus) element.querySelector("a").focus();
}

/** Returns the longest wait as text. */
export function stageWords(burst) {
  const whole = burst.stages?.total;
  return whole?.max === undefined ? "waiting" : `slowest ${duration(whole.max)}`;
}

/** Returns the details of a burst. */
export function burstDetail(burst, now) {
  return h(
    "div",
    { class: "burst-detail" },
    h("p", { class: "sentence" }, burst.text),
    h("p", { class: "soft" }, `${moment(burst.since)}, ${age(burst.since, now)} ago; ${burst.over ? `it took ${duration(burst.until - burst.since)}` : "it goes on"}. Training lost: ${duration(burst.lostSeconds ?? 0)}.`),
    h("div", { class: "columns" },
      part("Who asked", ["service", "asked", "run", "slowest"], Object.entries(burst.services ?? {}).map(([name, group]) => [name, count(group.count ?? 0), count(group.running ?? 0), duration(group.worstSeconds ?? 0)])),
      part("Who gave", ["job", "trainers", "training lost"], Object.entries(burst.trainers ?? {}).map(([name, group]) => [name.includes("/") ? jobLink(name) : name, count(group.count ?? 0), duration(group.lostSeconds ?? 0)])),
      part("Seconds by stage", ["stage", "median", "slowest"], [...STAGES, "total"].map((stage) => [stage, seconds(burst, stage, "median"), seconds(burst, stage, "max")]))),
  );
}

function seconds(burst, stage, which) {
  const value = burst.stages?.[stage]?.[which];
  return value === undefined ? "–" : duration(value);
}

function part(title, heads, rows) {
  const [first, ...others] = heads;
  const empty = h("tr", {}, h("td", { colspan: heads.length, class: "soft" }, "nobody"));
  return h("div", {}, h("h3", {}, title), h(
    "table",
    { class: "plain", "aria-label": title },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, first), others.map((head) => h("th", { scope: "col", class: "numeric" }, head)))),
    h("tbody", {}, rows.length ? rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", { class: "numeric" }, cell)))) : empty),
  ));
}
