// All elastic jobs: trainers over time, and a table with sorting and a filter.

import { get, path } from "../api.js";
import { TimeChart } from "../chart.js";
import { h, setText } from "../dom.js";
import { age, count, counted, moment, percent } from "../format.js";
import { choice, codeChip, fillShare, fillTrainers, jobHref, section, select, stateChip } from "../parts.js";
import { grid, StepSeries } from "../steps.js";
import { Table } from "../table.js";

const STATES = ["Running", "Waiting", "Suspended", "Complete", "Failed", "Invalid"];
const LINES = 8;
const POINTS = 240;
const CHART_EVERY_S = 0.9;
const LEAST_SPAN_S = 60;
const SPANS = [["900", "15 m"], ["3600", "1 h"]];
const MEASURES = [["trainers", "Trainers"], ["share", "Share"]];

class Jobs {
  constructor(page) {
    this.page = page;
    this.title = "Jobs";
    this.sections = ["jobs"];
    this.parameters = {};
    this.filter = "";
    this.state = "";
    this.span = 900;
    this.measure = "trainers";
    this.steps = new StepSeries();
    this.drawnAt = 0;
    this.chart = new TimeChart({ label: "Trainers of the largest jobs over time", series: [], format: count, kind: "steps", height: 220 });
    const controls = h("div", { class: "controls" }, page.me.cluster ? choice("Measure", MEASURES, this.measure, (value) => this.set({ measure: value })) : null, choice("Span of time", SPANS, String(this.span), (value) => this.set({ span: Number(value) })));
    this.search = h("input", { type: "search", placeholder: "Filter: name, namespace, queue, code", "aria-label": "Filter jobs", oninput: () => this.set({ filter: this.search.value }) });
    const states = select("State", [["", "All states"], ...STATES.map((name) => [name, name])], "", (value) => this.set({ state: value }));
    this.count = h("span", { class: "soft", role: "status" });
    this.table = new Table({ label: "Jobs", keyOf: (row) => row.key, onOpen: (row) => page.go(jobHref(row.key)), sortBy: "trainers", descending: true, empty: "", columns: columns(page) });
    this.table.element.classList.add("tall");
    this.element = h(
      "div",
      { class: "view" },
      h("h1", {}, "Jobs"),
      section("Trainers over time", { aside: controls }, this.chart.element),
      section("All jobs", { aside: h("div", { class: "controls" }, this.count, states, this.search) }, this.table.element),
    );
    this.load();
  }

  destroy() {
    this.table.destroy();
    this.chart.destroy();
  }

  /** What happened before this page was opened. */
  async load() {
    try {
      const answer = await get(path("/api/v1/jobs/series", { namespace: this.page.namespace, limit: "1000" }));
      this.steps.begin(answer.series);
      this.drawChart();
    } catch {
      // the chart starts now; the stream reports the error
    }
  }

  set(values) {
    Object.assign(this, values);
    this.drawTable();
    this.drawChart();
  }

  tick() {
    this.drawChart();
    this.table.draw();
  }

  update() {
    const { model } = this.page;
    if (!model.hasJobs) return;
    this.steps.add(model.jobs.values(), model.now);
    this.drawTable();
    if (model.now - this.drawnAt > CHART_EVERY_S) this.drawChart();
  }

  drawTable() {
    const { model } = this.page;
    if (!model.hasJobs) return;
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...model.jobs.values()].filter((row) => (!this.state || row.state === this.state) && matches(row, words));
    const isNarrowed = words.length || this.state;
    setText(this.count, isNarrowed ? `${count(rows.length)} of ${counted(model.jobs.size, "job")}` : counted(model.jobs.size, "job"));
    setText(this.table.note, isNarrowed ? "No job matches the filter." : "There are no elastic jobs. To submit one, see docs/training.md.");
    this.table.setRows(rows);
  }

  drawChart() {
    const { model } = this.page;
    this.drawnAt = model.now;
    const isShare = this.measure === "share";
    const times = grid(model.now, Math.min(this.span, Math.max(LEAST_SPAN_S, model.now - this.steps.first)), POINTS);
    const largest = this.steps.largest(times[0], LINES);
    const one = (key) => (isShare ? shareOfOne(model.jobs.get(key)) : 1);
    const values = Object.fromEntries(largest.map((key) => [key, this.steps.at(key, times).map((value) => (value === null ? null : value * one(key)))]));
    const series = largest.map((key, index) => ({ key, title: key, css: `line-${index + 1}` }));
    const rest = this.steps.rest(largest, times, isShare ? one : null);
    if (rest?.some((value) => value > 0)) {
      values.others = rest;
      series.push({ key: "others", title: "Others", css: "line-others" });
    }
    this.chart.setData({ times, values, limit: null }, { series, format: isShare ? (value) => percent(value, value < 0.1 && value > 0 ? 1 : 0) : count });
  }
}

/** The share of one trainer of a job, if known. */
function shareOfOne(row) {
  return row?.share && row.trainers ? row.share / row.trainers : 0;
}

function matches(row, words) {
  const text = `${row.key} ${row.queue} ${row.code} ${row.state}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function columns(page) {
  return [
    { key: "name", title: "Job", sort: (row) => row.key, render: renderName },
    { key: "state", title: "State", sort: (row) => STATES.indexOf(row.state), render: (cell, row) => once(cell, row.state, () => [stateChip(row.state)]) },
    { key: "trainers", title: "Trainers", sort: (row) => row.trainers, descends: true, render: fillTrainers },
    { key: "share", title: "Share", sort: (row) => row.share, descends: true, render: (cell, row) => fillShare(cell, row.share) },
    { key: "why", title: "Why no more", sort: (row) => row.code, render: renderWhy },
    { key: "since", title: "For", kind: "seconds", numeric: true, sort: (row) => row.since || null, render: (cell, row) => renderSince(cell, row, page) },
  ];
}

/** Rebuilds a cell's content only if its values have changed. */
function once(cell, text, make) {
  if (cell.shownText === text) return;
  cell.shownText = text;
  cell.replaceChildren(...make());
}

function renderName(cell, row) {
  once(cell, `${row.key} ${row.queue}`, () => {
    const slash = row.key.indexOf("/");
    return [
      h("a", { href: jobHref(row.key), class: "name", tabindex: -1, title: row.key }, h("span", { class: "soft" }, row.key.slice(0, slash + 1)), row.key.slice(slash + 1)),
      row.queue ? h("span", { class: "tag", title: "queue" }, row.queue) : null,
    ].filter(Boolean);
  });
}

function renderWhy(cell, row) {
  once(cell, `${row.code} ${row.text}`, () => (row.code ? [codeChip(row.code), h("span", { class: "soft", title: row.text }, row.text)] : [h("span", { class: "soft" }, row.text || "–")]));
}

function renderSince(cell, row, page) {
  setText(cell, row.since ? age(row.since, page.model.now) : "");
  cell.title = row.since ? moment(row.since) : "";
}

export function jobsView(page) {
  return new Jobs(page);
}
