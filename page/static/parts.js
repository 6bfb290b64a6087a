// Parts shared by several views.

import { keyPath } from "./api.js";
import { h, setAttribute, setStyle, setText } from "./dom.js";
import { age, clock, count, duration, figure, moment, percent } from "./format.js";

export const STAGES = ["decide", "free", "start"];
const TONES = {
  Running: "good", Waiting: "warn", Suspended: "calm", Complete: "calm", Failed: "bad", Invalid: "bad",
};
const WARN_CODES = new Set(["Refused", "TrainerFailed", "ObjectiveMissed", "JobFailed", "Quarantined", "Invalid", "FitsNoNode", "StartRefused", "BackingOff"]);
const TAKE_CODES = new Set(["ServicesFirst", "Preempted", "Reclaimed", "Reclaiming", "ReserveRestored", "Evicted"]);
const GOOD_CODES = new Set(["JobComplete", "AtMax", "Guaranteed", "Surplus"]);

/** A section of a page with a heading. */
export function section(title, { aside = null, css = "", id = title } = {}, ...children) {
  const name = `h-${id.toLowerCase().replaceAll(/[^a-z]+/g, "-")}`;
  return h("section", { class: `panel ${css}`.trim(), "aria-labelledby": name }, h("header", {}, h("h2", { id: name }, title), aside), ...children);
}

/** A figure in large type with its name and a line below; `set(value, note, tone)`. */
export class Tile {
  constructor(title) {
    this.value = h("dd", { class: "value" }, "–");
    this.note = h("dd", { class: "note" });
    this.element = h("div", { class: "tile" }, h("dt", {}, title), this.value, this.note);
  }

  set(value, note = "", tone = "") {
    setText(this.value, value);
    setText(this.note, note);
    setAttribute(this.element, "data-tone", tone || null);
  }
}

export function tiles(...items) {
  return h("dl", { class: "tiles" }, items.map((item) => item.element));
}

export function stateChip(state) {
  return h("span", { class: "chip", "data-tone": TONES[state] ?? "calm" }, state);
}

export function codeTone(code) {
  if (WARN_CODES.has(code)) return "bad";
  if (TAKE_CODES.has(code)) return "take";
  return GOOD_CODES.has(code) ? "good" : "calm";
}

export function codeChip(code, meaning = "") {
  return h("span", { class: "chip code", "data-tone": codeTone(code), title: meaning || null }, code);
}

export function jobHref(key) {
  return `#/jobs/${keyPath(key)}`;
}

/** A link to a job, with the namespace paler than the name. */
export function jobLink(key, properties = {}) {
  const slash = key.indexOf("/");
  return h("a", { href: jobHref(key), class: "name", ...properties }, h("span", { class: "soft" }, key.slice(0, slash + 1)), key.slice(slash + 1));
}

/** Trainers of a job in a cell: the present number and the bounds. */
export function fillTrainers(cell, row) {
  if (!cell.bar) {
    const [kept, extra, least] = ["fill guaranteed", "fill surplus", "least"].map((name) => h("span", { class: name }));
    const [present, bounds] = [h("b"), h("span", { class: "soft" })];
    cell.bar = { kept, extra, least, present, bounds };
    cell.replaceChildren(h("span", { class: "cell-bar" }, h("span", { class: "track", "aria-hidden": "true" }, kept, extra, least), h("span", { class: "figures" }, present, bounds)));
  }
  const { kept, extra, least, present, bounds } = cell.bar;
  const top = Math.max(row.max, row.trainers, 1);
  setStyle(kept, "width", `${(Math.min(row.trainers, row.min) / top) * 100}%`);
  setStyle(extra, "width", `${(Math.max(0, row.trainers - row.min) / top) * 100}%`);
  setStyle(least, "left", `${(row.min / top) * 100}%`);
  setText(present, count(row.trainers));
  setText(bounds, ` of ${count(row.min)}–${count(row.max)}`);
}

/** A job's share of the cluster in a cell, as a bar with its percentage. */
export function fillShare(cell, share) {
  if (!cell.bar) {
    const part = h("span", { class: "fill surplus" });
    const figures = h("span", { class: "figures" });
    cell.bar = { part, figures };
    cell.replaceChildren(h("span", { class: "cell-bar", title: "share of the cluster" }, h("span", { class: "track", "aria-hidden": "true" }, part), figures));
  }
  const { part, figures } = cell.bar;
  setStyle(part, "width", `${Math.min(100, (share ?? 0) * 100)}%`);
  setText(figures, percent(share, share < 0.1 ? 1 : 0));
}

/** A relative time, with the exact time as its title. */
export function time(at) {
  return h("time", { datetime: new Date(at * 1000).toISOString(), title: moment(at) }, clock(at));
}

/** Seconds of a burst by stage, as one bar: medians. */
export function stageBar(burst, longest) {
  const bar = h("span", { class: "stages", "aria-hidden": "true" });
  for (const stage of STAGES) {
    const seconds = burst.stages?.[stage]?.median ?? 0;
    const part = h("span", { class: `fill stage-${stage}`, title: `${stage}: ${duration(seconds)}` });
    part.style.width = `${(seconds / (longest || 1)) * 100}%`;
    bar.append(part);
  }
  return bar;
}

/** The longest median of all bursts, so that their bars have the same scale. */
export function longestBurst(bursts) {
  return Math.max(0, ...bursts.map((burst) => STAGES.reduce((sum, stage) => sum + (burst.stages?.[stage]?.median ?? 0), 0)));
}

export function stageLegend() {
  const words = { decide: "decide: until trainers were chosen", free: "free: until the service had its node", start: "start: until it ran" };
  return h("ul", { class: "legend" }, STAGES.map((stage) => h("li", {}, h("span", { class: `swatch stage-${stage}` }), words[stage])));
}

/** Sum of the counts of groups: {"prod/web": {count: 3}} -> 3. */
export function total(groups) {
  return Object.values(groups ?? {}).reduce((sum, group) => sum + (group.count ?? 0), 0);
}

/** A list of decisions, newest first, each with its figures on request. */
export function decisionItem(record, now) {
  const figures = Object.entries(record.figures ?? {});
  const kind = record.about.split(" ")[0];
  const name = record.about.slice(kind.length + 1);
  const about = kind === "job" ? jobLink(name) : h("span", { class: "name" }, h("span", { class: "soft" }, `${kind} `), name);
  const more = figures.length || record.helps || record.meaning;
  return h(
    "li",
    { class: "decision" },
    h("div", { class: "line" }, codeChip(record.code, record.meaning), about, h("span", { class: "soft when", title: moment(record.at) }, `${age(record.at, now)} ago`)),
    h("p", {}, record.text || record.meaning),
    more ? h("details", {}, h("summary", {}, "Figures"), figureList(record)) : null,
  );
}

/** The details of a record. */
export function figureList(record) {
  const rows = [["time", moment(record.at)], ["meaning", record.meaning], ["what helps", record.helps], ["job", record.job]];
  const all = [...rows.filter(([, value]) => value), ...Object.entries(record.figures ?? {}).map(([name, value]) => [name, figure(value)])];
  return h("dl", { class: "figure-list" }, all.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** Radio buttons that look like a switch. choices: [[value, title]] */
export function choice(label, choices, chosen, onChange) {
  const name = `choice-${Math.random().toString(36).slice(2)}`;
  return h(
    "fieldset",
    { class: "choice" },
    h("legend", { class: "visually-hidden" }, label),
    choices.map(([value, title]) =>
      h("label", {}, h("input", { type: "radio", name, value, checked: value === chosen, onchange: () => onChange(value) }), h("span", {}, title))),
  );
}

export function select(label, options, chosen, onChange) {
  const element = h("select", { "aria-label": label, onchange: (event) => onChange(event.target.value) });
  setOptions(element, options, chosen);
  return element;
}

/** options: [[value, title]]; the document is changed only if they differ. */
export function setOptions(element, options, chosen) {
  const text = JSON.stringify(options);
  if (element.shownOptions !== text) {
    element.shownOptions = text;
    element.replaceChildren(...options.map(([value, title]) => h("option", { value }, title)));
  }
  if (element.value !== chosen) element.value = chosen;
}

/** A note that a view needs a permission. */
export function rightNote(what) {
  return h("p", { class: "empty" }, `${what} visible only with permission to list nodes, and pods in all namespaces.`);
}
