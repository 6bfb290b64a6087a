// Use of the cluster over time, the reclaim objective, the newest bursts, jobs and decisions.

import { TimeChart } from "../chart.js";
import { h, keyed, setText } from "../dom.js";
import { age, amount, count, counted, duration, isBytes, percent } from "../format.js";
import { Objective } from "../objective.js";
import { burstItem } from "../burst.js";
import { choice, decisionItem, fillShare, fillTrainers, jobLink, longestBurst, rightNote, section, select, setOptions, stageLegend, stateChip, Tile, tiles, total } from "../parts.js";
import { recordKey } from "../model.js";

const SPANS = [["900", "15 m"], ["3600", "1 h"], ["21600", "6 h"], ["90000", "24 h"]];
const SERIES = [
  { key: "services", title: "Services", css: "services" },
  { key: "guaranteed", title: "Training, guaranteed", css: "guaranteed" },
  { key: "surplus", title: "Training, surplus", css: "surplus" },
  { key: "free", title: "Free", css: "free" },
];
const SHOWN = 6;

class Overview {
  constructor(page) {
    this.page = page;
    this.title = "Overview";
    this.sections = ["usage", "jobs", "records", "reclaims", "objective"];
    this.parameters = {};
    this.span = 3600;
    this.resource = "cpu";
    this.tiles = Object.fromEntries(["Services waiting", "Trainers", "In use", "Objective", "Newest reclaim"].map((title) => [title, new Tile(title)]));
    this.chart = new TimeChart({ label: "Use of the cluster over time", series: SERIES, format: (value) => amount(this.resource, value), height: 250 });
    this.resources = select("Resource", [["cpu", "cpu"]], "cpu", (value) => this.set({ resource: value }));
    const spans = choice("Span of time", SPANS, String(this.span), (value) => this.set({ span: Number(value) }));
    this.objective = new Objective();
    this.bursts = h("ul", { class: "bursts" });
    this.jobs = h("ul", { class: "job-list" });
    this.decisions = h("ul", { class: "decisions" });
    this.notes = Object.fromEntries(["bursts", "jobs", "decisions"].map((name) => [name, h("p", { class: "empty", hidden: true })]));
    this.use = page.me.cluster
      ? section("Use of the cluster", { css: "wide", aside: h("div", { class: "controls" }, this.resources, spans) }, this.chart.element)
      : section("Use of the cluster", { css: "wide" }, rightNote("The use of the cluster is"));
    this.element = h(
      "div",
      { class: "view overview" },
      h("h1", { class: "visually-hidden" }, "Overview"),
      tiles(...Object.values(this.tiles)),
      this.use,
      h(
        "div",
        { class: "columns" },
        h("div", { class: "stack" },
          section("Reclaim objective", {}, this.objective.element),
          section("Newest reclaims", { aside: h("a", { href: "#/reclaims" }, "All reclaims") }, stageLegend(), this.notes.bursts, this.bursts)),
        h("div", { class: "stack" },
          section("Largest jobs", { aside: h("a", { href: "#/jobs" }, "All jobs") }, this.notes.jobs, this.jobs),
          section("Newest decisions", { aside: h("a", { href: "#/decisions" }, "All decisions") }, this.notes.decisions, this.decisions)),
      ),
    );
  }

  set(values) {
    Object.assign(this, values);
    this.drawUse();
    this.drawInUse();
  }

  destroy() {
    this.chart.destroy();
    this.objective.destroy();
  }

  tick() {
    this.update(new Set(["usage-ages", "reclaims", "records"]));
  }

  update(changed = new Set(["usage", "jobs", "records", "reclaims", "objective"])) {
    if (changed.has("usage")) this.drawUse();
    if (changed.has("usage") || changed.has("usage-ages")) this.drawInUse();
    if (changed.has("jobs")) this.drawJobs();
    if (changed.has("reclaims")) this.drawBursts();
    if (changed.has("records")) this.drawDecisions();
    if (changed.has("objective")) this.drawObjective();
  }

  drawUse() {
    const { usage } = this.page.model;
    if (!usage?.resources.length) return;
    if (!usage.resources.includes(this.resource)) [this.resource] = usage.resources;
    setOptions(this.resources, usage.resources.map((name) => [name, name]), this.resource);
    const column = usage.resources.indexOf(this.resource);
    const newest = usage.points.at(-1)?.[0] ?? 0;
    const points = usage.points.filter((point) => point[0] >= newest - this.span && point[1][column]);
    const of = (place) => points.map((point) => point[1][column][place]);
    const [totals, services, guaranteed, surplus] = [of(0), of(1), of(2), of(3)];
    const free = totals.map((value, index) => Math.max(0, value - services[index] - guaranteed[index] - surplus[index]));
    this.chart.setData({ times: points.map((point) => point[0]), values: { services, guaranteed, surplus, free }, limit: null }, { binary: isBytes(this.resource) });
  }

  drawInUse() {
    const { usage, now } = this.page.model;
    if (!usage) return;
    const { waiting } = usage;
    if (waiting) {
      const note = waiting.services ? `the oldest for ${age(waiting.oldestSince, now)}` : "all services have a node";
      this.tiles["Services waiting"].set(count(waiting.services), note, waiting.services ? "warn" : "good");
    }
    const parts = usage.points.at(-1)?.[1][usage.resources.indexOf(this.resource)];
    if (parts?.[0]) {
      const [whole, services, guaranteed, surplus] = parts;
      const training = guaranteed + surplus;
      this.tiles["In use"].set(percent((services + training) / whole), `of ${amount(this.resource, whole)} ${this.resource}: services ${percent(services / whole)}, training ${percent(training / whole)}`);
    }
  }

  drawJobs() {
    const { model } = this.page;
    if (!model.hasJobs) return; // sums of a part would be shown as those of all
    const running = [...model.jobs.values()].filter((row) => !["Complete", "Failed"].includes(row.state));
    const waiting = running.filter((row) => row.state === "Waiting").length;
    const trainers = running.reduce((sum, row) => sum + row.trainers, 0);
    this.tiles.Trainers.set(count(trainers), `of ${counted(running.length, "job")}${waiting ? `; ${count(waiting)} below minimum` : ""}`, waiting ? "warn" : "");
    const largest = running.sort((a, b) => (b.share ?? 0) - (a.share ?? 0) || b.trainers - a.trainers || (a.key < b.key ? -1 : 1)).slice(0, SHOWN);
    this.say("jobs", !largest.length ? "There are no elastic jobs. To submit one, see docs/training.md." : "");
    keyed(this.jobs, largest, (row) => row.key, () => h("li", { class: "job-line" }), (element, row) => {
      const text = JSON.stringify([row.trainers, row.min, row.max, row.state, row.share, row.code]);
      if (element.shownText === text) return;
      element.shownText = text;
      const focused = element.contains(document.activeElement);
      const bars = [h("span"), h("span")];
      fillTrainers(bars[0], row);
      fillShare(bars[1], row.share);
      element.replaceChildren(
        h("div", { class: "line" }, jobLink(row.key), h("span", { class: "when" }, stateChip(row.state))),
        h("div", { class: "bars" }, bars),
      );
      if (focused) element.querySelector("a").focus();
    });
  }

  drawBursts() {
    const { model } = this.page;
    const all = model.bursts();
    const [newest] = all;
    if (newest) {
      const worst = newest.stages?.total?.max;
      const services = total(newest.services);
      const gave = `${counted(total(newest.trainers), "trainer")} evicted`;
      const when = newest.over ? `${age(newest.since, model.now)} ago` : "ongoing";
      this.tiles["Newest reclaim"].set(worst === undefined ? counted(services, "service") : duration(worst), `${worst === undefined ? "" : `slowest of ${counted(services, "service")}; `}${gave}, ${when}`, newest.over ? "" : "warn");
    } else if (model.hasReclaims) this.tiles["Newest reclaim"].set("none", "no service has needed capacity from training");
    const shown = all.slice(0, SHOWN - 1);
    this.say("bursts", model.hasReclaims && !shown.length ? "The records show no service that took capacity from training." : "");
    const longest = longestBurst(shown);
    keyed(this.bursts, shown, (burst) => burst.id, () => h("li"), (element, burst) => burstItem(element, burst, longest, model.now));
  }

  drawDecisions() {
    const { model } = this.page;
    const shown = model.records.slice(-SHOWN).reverse();
    this.say("decisions", model.hasRecords && !shown.length ? "Nothing has been decided yet." : "");
    keyed(this.decisions, shown, recordKey, (record) => decisionItem(record, model.now), (element, record) => {
      setText(element.querySelector(".when"), `${age(record.at, model.now)} ago`);
    });
  }

  drawObjective() {
    const { objective } = this.page.model;
    this.objective.set(objective, this.page.me.objective);
    const tile = this.tiles.Objective;
    if (!objective) {
      tile.set("–", this.page.me.objective ? "none in the policy" : "needs permission");
      return;
    }
    const services = objective.kept + objective.missed;
    const tone = objective.budgetLeft < 0 ? "bad" : objective.budgetLeft < 0.25 ? "warn" : "good";
    tile.set(services ? percent(objective.kept / services, 1) : "–", `within ${duration(objective.seconds)}; target ${percent(objective.share)}, ${percent(Math.max(0, objective.budgetLeft))} of the budget left`, tone);
  }

  say(name, text) {
    setText(this.notes[name], text);
    this.notes[name].hidden = !text;
  }
}

export function overviewView(page) {
  return new Overview(page);
}
