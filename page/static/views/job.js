// One job: the reason for its number of trainers, its trainers, its training, repeated work, and decisions.

import { keyPath } from "../api.js";
import { TimeChart } from "../chart.js";
import { h, keyed, setAttribute, setText } from "../dom.js";
import { age, count, counted, duration, figure, moment, percent } from "../format.js";
import { recordKey } from "../model.js";
import { codeChip, decisionItem, section, stateChip, Tile, tiles } from "../parts.js";
import { grid, StepSeries } from "../steps.js";
import { Table, textCell } from "../table.js";
import { Training } from "../training.js";

const POINTS = 300;
const LEAST_SPAN_S = 600;
const LONGEST_SPAN_S = 86_400;
const SHOWN_DECISIONS = 12;
const BOOKS = [
  ["nextId", "ids used so far"], ["open", "open"], ["succeeded", "succeeded"], ["failed", "failed"], ["excused", "failed, not counted"],
  ["disrupted", "disrupted"], ["released", "released by EDL"], ["failuresInRow", "consecutive failures"],
];

class JobView {
  constructor(page, namespace, name) {
    this.page = page;
    this.key = `${namespace}/${name}`;
    this.title = this.key;
    this.sections = ["job"];
    this.parameters = { job: this.key, namespace: "" };
    if (page.model.job?.key !== this.key) page.model.job = null;
    this.state = h("span");
    this.why = h("div", { class: "why" });
    this.tiles = Object.fromEntries(["Trainers", "Share", "Training lost", "Trainers ended early"].map((title) => [title, new Tile(title)]));
    this.chart = new TimeChart({ label: `Trainers of ${this.key} over time`, series: [{ key: "trainers", title: "Trainers", css: "surplus" }], format: count, kind: "steps", limitTitle: "Maximum", height: 180 });
    this.training = new Training(page, this.key, () => this.members.draw());
    this.members = new Table({ label: "Trainers", keyOf: (row) => row.name, sortBy: "id", columns: memberColumns(page, (row) => this.training.of(row)), empty: "The job has no trainers." });
    this.memberCount = h("span", { class: "soft" });
    this.servers = new Table({ label: "Parameter servers", keyOf: (row) => row.name, sortBy: "index", columns: serverColumns(page), empty: "" });
    this.serverPanel = section("Parameter servers", {}, this.servers.element);
    this.decisions = h("ul", { class: "decisions" });
    this.noDecisions = h("p", { class: "empty", hidden: true }, "No decisions are recorded for this job.");
    this.books = h("dl", { class: "figure-list" });
    this.facts = h("dl", { class: "figure-list" });
    this.body = h(
      "div",
      { class: "stack", hidden: true },
      section("Why", {}, this.why),
      tiles(...Object.values(this.tiles)),
      section("Trainers over time", {}, this.chart.element),
      this.training.element,
      section("Trainers now", { aside: this.memberCount }, this.members.element),
      this.serverPanel,
      h("div", { class: "columns" }, section("Decisions", { aside: h("a", { href: `#/decisions/${keyPath(this.key)}` }, "All decisions") }, this.noDecisions, this.decisions), h("div", { class: "stack" }, section("Trainer accounting", {}, this.books), section("Settings", {}, this.facts))),
    );
    this.note = h("p", { class: "empty" }, "Loading …");
    this.element = h(
      "div",
      { class: "view job" },
      h("nav", { "aria-label": "Path", class: "path" }, h("a", { href: "#/jobs" }, "Jobs"), " / ", h("a", { href: "#/jobs", onclick: (event) => this.narrow(event, namespace) }, namespace)),
      h("h1", {}, h("span", {}, name), this.state),
      this.note,
      this.body,
    );
  }

  destroy() {
    this.members.destroy();
    this.servers.destroy();
    this.chart.destroy();
    this.training.destroy();
  }

  /** To the jobs of the namespace. */
  narrow(event, namespace) {
    if (!this.page.me.namespaces.includes(namespace)) return;
    event.preventDefault();
    this.page.scope.value = namespace;
    this.page.namespace = namespace;
    this.page.go("#/jobs");
  }

  refused(error) {
    this.say(error.status === 404 ? `Elastic job ${this.key} does not exist, or you do not have permission to see it.` : error.message);
  }

  say(text) {
    setText(this.note, text);
    this.note.hidden = !text;
    this.body.hidden = Boolean(text);
  }

  tick() {
    if (!this.page.model.job) return;
    this.drawWhy(this.page.model.job);
    this.drawChart(this.page.model.job);
    this.members.draw();
  }

  update() {
    const { job } = this.page.model;
    if (!job || job.key !== this.key) return;
    if (job.gone) {
      this.training.stop();
      this.say(`The job ${this.key} has been deleted.`);
      return;
    }
    this.say("");
    if (this.state.textContent !== job.state) this.state.replaceChildren(stateChip(job.state));
    this.drawWhy(job);
    this.drawTiles(job);
    this.drawChart(job);
    this.members.setRows(job.members ?? []);
    this.members.element.classList.toggle("short", (job.members ?? []).length > 8);
    setText(this.memberCount, counted(job.memberCount ?? 0, "trainer") + (job.memberCount > job.members.length ? `, ${count(job.members.length)} shown` : ""));
    this.serverPanel.hidden = !job.parameterServers?.length;
    this.servers.setRows(job.parameterServers ?? []);
    this.drawDecisions(job);
    this.drawFacts(job);
    this.training.follow(job);
  }

  drawWhy(job) {
    const text = JSON.stringify([job.code, job.text, job.helps, job.message, job.since && age(job.since, this.page.model.now)]);
    if (this.why.shownText === text) return;
    this.why.shownText = text;
    this.why.replaceChildren(
      h("p", { class: "sentence" }, job.code ? codeChip(job.code) : null, job.text || job.message || "EDL has not planned this job yet.", job.since ? h("span", { class: "soft", title: moment(job.since) }, ` for ${age(job.since, this.page.model.now)}`) : null),
      job.helps ? h("p", {}, h("b", {}, "What to do: "), job.helps) : "",
      job.message && job.text ? h("p", { class: "soft" }, job.message) : "",
    );
  }

  drawTiles(job) {
    const waiting = job.waiting ? `, ${count(job.waiting)} without a node` : "";
    const tone = job.state === "Waiting" ? "warn" : "";
    this.tiles.Trainers.set(`${count(job.trainers)} of ${count(job.min)}–${count(job.max)}`, `wanted now: ${count(job.target)}${waiting}`, tone);
    const fulfilment = !(job.fulfilment >= 0) ? "" : `${percent(job.fulfilment)} of the range above its minimum`;
    this.tiles.Share.set(job.share === null ? "–" : percent(job.share, 1), job.share === null ? "needs permission to list nodes" : fulfilment);
    this.tiles["Training lost"].set(duration(job.lostSeconds ?? 0), "by releases and preemptions, then repeated");
    const { books = {} } = job;
    const ended = (books.released ?? 0) + (books.disrupted ?? 0) + (books.failed ?? 0);
    this.tiles["Trainers ended early"].set(count(ended), `released ${count(books.released ?? 0)}, disrupted ${count(books.disrupted ?? 0)}, failed ${count(books.failed ?? 0)}`);
  }

  drawChart(job) {
    const steps = new StepSeries();
    steps.begin({ trainers: job.trainersOverTime ?? [] });
    const { now } = this.page.model;
    const first = job.trainersOverTime?.[0]?.[0] ?? now;
    const span = Math.min(LONGEST_SPAN_S, Math.max(LEAST_SPAN_S, (now - first) * 1.02));
    const times = grid(now, span, POINTS);
    this.chart.setData({ times, values: { trainers: steps.at("trainers", times) }, limit: times.map(() => job.max) }, {});
  }

  drawDecisions(job) {
    const shown = (job.history ?? []).slice(-SHOWN_DECISIONS).reverse();
    this.noDecisions.hidden = shown.length > 0;
    const { now } = this.page.model;
    keyed(this.decisions, shown, recordKey, (record) => decisionItem(record, now), (element, record) => setText(element.querySelector(".when"), `${age(record.at, now)} ago`));
  }

  drawFacts(job) {
    fillList(this.books, BOOKS.map(([name, title]) => [title, count(job.books?.[name] ?? 0)]));
    const requests = Object.entries(job.requests ?? {}).map(([name, value]) => `${value} ${name}`).join(", ");
    fillList(this.facts, [
      ["each trainer", requests || "–"], ["queue", job.queue || "–"], ["weight", figure(job.weight ?? 1)], ["created", moment(job.created)],
      ...(job.conditions ?? []).map((condition) => [condition.type, [condition.status, condition.reason, condition.message].filter(Boolean).join(": ")]),
    ]);
  }
}

function fillList(list, rows) {
  const text = JSON.stringify(rows);
  if (list.shownText === text) return;
  list.shownText = text;
  list.replaceChildren(...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function phase(row) {
  if (row.leaving) return "Leaving";
  if (row.phase === "Running" && !row.ready) return "Starting";
  return row.phase;
}

/** told: row -> the master's report about a trainer. */
function memberColumns(page, told) {
  return [
    { key: "id", title: "Trainer", sort: (row) => row.id, render: (cell, row) => nameCell(cell, row) },
    { key: "node", title: "Node", sort: (row) => row.node, render: (cell, row) => nodeCell(cell, row, page) },
    { key: "tier", title: "Tier", kind: "word", sort: (row) => row.tier, render: textCell((row) => row.tier) },
    { key: "phase", title: "State", kind: "word", sort: phase, render: (cell, row) => { setText(cell, phase(row)); setAttribute(cell, "data-tone", { Running: "good", Failed: "bad", Leaving: "warn", Pending: "warn" }[phase(row)]); } },
    { key: "created", title: "Age", kind: "seconds", numeric: true, sort: (row) => row.created, render: textCell((row) => age(row.created, page.model.now)) },
    { key: "restarts", title: "Restarts", kind: "seconds", numeric: true, sort: (row) => row.restarts ?? 0, descends: true, render: textCell((row) => count(row.restarts ?? 0)) },
    { key: "steps", title: "Steps", kind: "seconds", numeric: true, sort: (row) => told(row)?.steps ?? null, descends: true, render: textCell((row) => (told(row) ? count(told(row).steps ?? 0) : "–")) },
    { key: "records", title: "Records", kind: "seconds", numeric: true, sort: (row) => told(row)?.records ?? null, descends: true, render: textCell((row) => (told(row) ? count(told(row).records ?? 0) : "–")) },
    { key: "uncommitted", title: "Uncommitted", kind: "time", numeric: true, sort: (row) => row.uncommittedSeconds ?? null, descends: true, render: textCell((row) => (row.uncommittedSeconds === null || row.uncommittedSeconds === undefined ? "–" : duration(row.uncommittedSeconds))) },
  ];
}

function nameCell(cell, row) {
  const text = `${row.name} ${row.master}`;
  if (cell.shownText === text) return;
  cell.shownText = text;
  cell.replaceChildren(h("span", { class: "name", title: row.name }, row.name), ...(row.master ? [h("span", { class: "tag", title: "This pod hosts the job's master." }, "master")] : []));
}

function nodeCell(cell, row, page) {
  if (cell.shownText === row.node) return;
  cell.shownText = row.node;
  if (!row.node) cell.replaceChildren(h("span", { class: "soft" }, "none yet"));
  else if (page.me.cluster) cell.replaceChildren(h("a", { href: `#/nodes/${encodeURIComponent(row.node)}`, tabindex: -1 }, row.node));
  else cell.replaceChildren(row.node);
}

function serverColumns(page) {
  return [
    { key: "index", title: "Server", sort: (row) => row.index, render: textCell((row) => row.name) },
    { key: "node", title: "Node", sort: (row) => row.node, render: (cell, row) => nodeCell(cell, row, page) },
    { key: "phase", title: "State", kind: "word", sort: phase, render: textCell((row) => phase(row)) },
    { key: "created", title: "Age", kind: "seconds", numeric: true, sort: (row) => row.created, render: textCell((row) => age(row.created, page.model.now)) },
  ];
}

export function jobView(page, namespace, name) {
  return new JobView(page, namespace, name);
}
