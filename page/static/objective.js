// The reclaim objective: budget, burn rates, and services that met and missed it over time.

import { TimeChart } from "./chart.js";
import { h, setAttribute, setText } from "./dom.js";
import { count, duration, percent } from "./format.js";

const BARS = 48;
const BUCKET_S = 300;
const SERIES = [{ key: "kept", title: "Kept", css: "kept" }, { key: "missed", title: "Missed", css: "missed" }];

export class Objective {
  constructor() {
    this.sentence = h("p", { class: "sentence" });
    this.part = h("span", { class: "fill" });
    this.meter = h("span", { class: "track", role: "meter", "aria-valuemin": 0, "aria-valuemax": 1, "aria-label": "Budget left" }, this.part);
    this.left = h("b");
    this.burn = h("ul", { class: "burn" });
    this.chart = new TimeChart({ label: "Services that met and missed the objective", series: SERIES, format: count, kind: "bars", height: 120 });
    this.body = h("div", {}, h("div", { class: "budget" }, h("span", {}, "Budget left"), this.meter, this.left), this.burn, this.chart.element);
    this.element = h("div", { class: "objective" }, this.sentence, this.body);
    this.body.hidden = true;
  }

  destroy() {
    this.chart.destroy();
  }

  /** objective: from the stream; null if the policy has none, undefined before it is known. */
  set(objective, isVisible) {
    this.body.hidden = !objective;
    if (!objective) {
      const none = "The policy defines no objective; see objectives.reclaim in docs/cli.md.";
      setText(this.sentence, isVisible ? (objective === undefined ? "" : none) : "You do not have permission to see this.");
      return;
    }
    const { kept, missed, budgetLeft } = objective;
    const services = `${count(kept)} of ${count(kept + missed)} services`;
    setText(this.sentence, `${services} ran within ${duration(objective.seconds)} in the last ${objective.windowHours} hours; ${percent(objective.share, 1)} are wanted.`);
    const part = Math.min(1, Math.max(0, budgetLeft));
    this.part.style.width = `${part * 100}%`;
    setAttribute(this.part, "data-tone", part < 0.25 ? "bad" : part < 0.5 ? "warn" : "good");
    setAttribute(this.meter, "aria-valuenow", part);
    setAttribute(this.meter, "aria-valuetext", percent(budgetLeft));
    setText(this.left, budgetLeft < 0 ? `overspent by ${percent(-budgetLeft)}` : percent(budgetLeft));
    this.burn.replaceChildren(...Object.entries(objective.burn ?? {}).map(([span, rate]) =>
      h("li", { "data-tone": rate > 1 ? "bad" : null }, h("span", { class: "soft" }, `Burn rate, ${span}`), " ", h("b", {}, rate.toFixed(2)))));
    this.chart.setData(bars(objective));
  }
}

/** Sums over spans of equal length in the window. */
function bars(objective) {
  const to = objective.at;
  const from = to - objective.windowHours * 3600;
  const step = (to - from) / BARS;
  const times = Array.from({ length: BARS + 1 }, (_, index) => from + index * step);
  const values = { kept: times.map(() => 0), missed: times.map(() => 0) };
  for (const [start, kept, missed] of objective.buckets ?? []) {
    const index = Math.min(BARS, Math.floor((start + BUCKET_S / 2 - from) / step) + 1);
    if (index < 1) continue;
    values.kept[index] += kept;
    values.missed[index] += missed;
  }
  return { times, values, limit: null };
}
