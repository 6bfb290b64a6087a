// Nodes as a heat map: their use, and how many more trainers of a job fit on each.

import { get } from "../api.js";
import { h, setText } from "../dom.js";
import { amount, count, counted, percent } from "../format.js";
import { HeatMap } from "../heatmap.js";
import { choice, jobLink, rightNote, section, select, setOptions } from "../parts.js";
import { Table, textCell } from "../table.js";

const READY = 1;
const CORDONED = 2;
const TAINTED = 4;
const LEAVING = 8;
const ORDERS = [["name", "By name"], ["use", "By use"], ["fits", "By trainers that fit"]];

class Nodes {
  constructor(page, name = null) {
    this.page = page;
    this.chosen = name;
    this.title = "Nodes";
    this.sections = page.me.cluster ? ["nodes", "jobs"] : [];
    this.job = page.model.nodes.fits ?? "";
    this.parameters = { fits: this.job };
    this.resource = "cpu";
    this.order = "name";
    this.filter = "";
    this.surplus = "no";
    if (!page.me.cluster) {
      this.element = h("div", { class: "view" }, h("h1", {}, "Nodes"), h("section", { class: "panel" }, rightNote("Nodes are")));
      return;
    }
    this.resources = select("Resource", [["cpu", "cpu"]], "cpu", (value) => this.set({ resource: value }));
    this.jobs = select("Job whose trainers to fit", [["", "Trainers that fit: choose a job"]], this.job, (value) => this.ask(value));
    this.orders = select("Order", ORDERS, this.order, (value) => this.set({ order: value }));
    this.withSurplus = choice("Capacity", [["no", "Fits now"], ["yes", "Without surplus"]], "no", (value) => this.set({ surplus: value }));
    this.search = h("input", { type: "search", placeholder: "Filter: name, label", "aria-label": "Filter nodes", oninput: () => this.set({ filter: this.search.value }) });
    this.summary = h("p", { class: "sentence", role: "status" }, "Loading …");
    this.legend = h("ul", { class: "legend" });
    this.map = new HeatMap({ label: "Nodes", describe: (item) => this.describe(item.row), select: (item) => page.go(`#/nodes/${encodeURIComponent(item.key)}`) });
    this.table = new Table({ label: "Nodes", keyOf: (row) => row.name, onOpen: (row) => page.go(`#/nodes/${encodeURIComponent(row.name)}`), sortBy: "name", columns: this.columns(), empty: "No node matches the filter." });
    this.table.element.classList.add("tall");
    this.detail = h("div", { class: "detail" });
    this.element = h(
      "div",
      { class: "view nodes" },
      h("h1", {}, "Nodes"),
      section("Use and free capacity", { aside: h("div", { class: "controls" }, this.resources, this.jobs, this.withSurplus, this.orders, this.search) }, this.summary, this.legend, this.map.element),
      name ? section(`Node ${name}`, { id: "node" }, this.detail) : null,
      section("As a table", {}, this.table.element),
    );
    if (name) this.load(name);
  }

  destroy() {
    this.map?.destroy();
    this.table?.destroy();
  }

  set(values) {
    Object.assign(this, values);
    this.update();
  }

  /** Asks the server how many trainers of a job fit on each node. */
  ask(job) {
    this.job = job;
    this.parameters = { fits: job };
    this.page.follow();
  }

  get column() {
    return this.page.model.nodes.resources.indexOf(this.resource);
  }

  update(changed = new Set(["nodes", "jobs"])) {
    if (!this.page.me.cluster) return;
    const { model } = this.page;
    if (changed.has("jobs") && model.hasJobs) {
      const open = [...model.jobs.values()].filter((row) => !["Complete", "Failed", "Invalid"].includes(row.state)).map((row) => row.key).sort();
      setOptions(this.jobs, [["", open.length ? "Trainers that fit: choose a job" : "No job to choose"], ...open.map((key) => [key, `Trainers that fit: ${key}`])], this.job);
    }
    const { nodes } = model;
    if (!nodes.isWhole || !changed.has("nodes")) return;
    if (!nodes.resources.includes(this.resource)) this.resource = nodes.resources[0] ?? "cpu";
    setOptions(this.resources, nodes.resources.map((name) => [name, name]), this.resource);
    this.showsFits = Boolean(nodes.fits);
    this.withSurplus.hidden = !this.showsFits;
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...nodes.rows.values()].map(toRow).filter((row) => words.every((word) => row.text.includes(word)));
    this.greatest = Math.max(1, ...rows.map((row) => this.fits(row) ?? 0));
    this.sortRows(rows);
    this.map.setItems(rows.map((row) => this.item(row)), this.chosen);
    this.table.setRows(rows);
    this.drawSummary(rows, nodes);
    this.drawLegend();
  }

  sortRows(rows) {
    const { compare } = new Intl.Collator("en", { numeric: true });
    const byName = (a, b) => compare(a.name, b.name);
    const use = (row) => this.used(row) / (this.amounts(row)[0] || 1);
    if (this.order === "use") rows.sort((a, b) => use(b) - use(a) || byName(a, b));
    else if (this.order === "fits") rows.sort((a, b) => (this.fits(b) ?? 0) - (this.fits(a) ?? 0) || byName(a, b));
    else rows.sort(byName);
  }

  amounts(row) {
    return row.amounts[this.column] ?? [0, 0, 0, 0];
  }

  used(row) {
    const [, services, guaranteed, surplus] = this.amounts(row);
    return services + guaranteed + surplus;
  }

  fits(row) {
    return this.surplus === "yes" ? row.fitsWithoutSurplus : row.fitsNow;
  }

  item(row) {
    const [whole, services, guaranteed, surplus] = this.amounts(row);
    const share = (value) => (whole ? value / whole : 0);
    const marked = !(row.flags & READY) || Boolean(row.flags & CORDONED);
    if (this.showsFits) {
      const fits = this.fits(row) ?? 0;
      return { key: row.name, label: row.name, row, parts: [], tone: fits ? 0.25 + 0.75 * (fits / this.greatest) : 0, marked, badge: count(fits) };
    }
    const parts = [{ color: "services", share: share(services) }, { color: "guaranteed", share: share(guaranteed) }, { color: "surplus", share: share(surplus) }];
    return { key: row.name, label: row.name, row, parts, tone: null, marked, badge: "" };
  }

  describe(row) {
    const [whole, services, guaranteed, surplus] = this.amounts(row);
    const of = (value) => amount(this.resource, value);
    const fits = this.showsFits ? `\n${counted(row.fitsNow ?? 0, "trainer")} more of ${this.page.model.nodes.fits} now, ${count(row.fitsWithoutSurplus ?? 0)} if surplus left` : "";
    const flags = stateOf(row) === "ready" ? "" : ` (${stateOf(row)})`;
    return `${row.name}${flags}\n${this.resource}: services ${of(services)}, guaranteed ${of(guaranteed)}, surplus ${of(surplus)}, free ${of(Math.max(0, whole - this.used(row)))} of ${of(whole)}${fits}`;
  }

  drawSummary(rows, nodes) {
    const away = rows.filter((row) => !(row.flags & READY)).length;
    const cordoned = rows.filter((row) => row.flags & CORDONED).length;
    const state = [counted(rows.length, "node"), away ? `${count(away)} not ready` : "", cordoned ? `${count(cordoned)} cordoned` : ""].filter(Boolean).join(", ");
    let fits = "";
    if (this.showsFits) {
      const sum = rows.reduce((all, row) => all + (row.fitsNow ?? 0), 0);
      const withoutSurplus = rows.reduce((all, row) => all + (row.fitsWithoutSurplus ?? 0), 0);
      fits = ` ${counted(sum, "trainer")} more of ${nodes.fits} fit now; without surplus of jobs, ${count(withoutSurplus)}.`;
    }
    setText(this.summary, rows.length || this.filter ? `${state}.${fits}` : "The cluster has no nodes.");
  }

  drawLegend() {
    const entries = this.showsFits
      ? [["fits-none", "no trainer fits"], ...(this.greatest > 1 ? [["fits-some", "one fits"]] : []), ["fits-many", this.greatest > 1 ? `${count(this.greatest)} fit` : "one fits"]]
      : [["services", "Services"], ["guaranteed", "Training, guaranteed"], ["surplus", "Training, surplus"], ["free", "Free"]];
    const text = JSON.stringify(entries);
    if (this.legend.shownText === text) return;
    this.legend.shownText = text;
    this.legend.replaceChildren(...entries.map(([css, title]) => h("li", {}, h("span", { class: `swatch ${css}` }), title)), h("li", {}, h("span", { class: "swatch crossed" }), "not ready or cordoned"));
  }

  columns() {
    const share = (row) => (this.amounts(row)[0] ? this.used(row) / this.amounts(row)[0] : null);
    const of = (place) => (row) => amount(this.resource, place === 4 ? Math.max(0, this.amounts(row)[0] - this.used(row)) : this.amounts(row)[place]);
    return [
      { key: "name", title: "Node", sort: (row) => row.name, render: (cell, row) => { if (cell.shownText !== row.name) { cell.shownText = row.name; cell.replaceChildren(h("a", { class: "name", href: `#/nodes/${encodeURIComponent(row.name)}`, tabindex: -1, title: row.name }, row.name)); } } },
      { key: "state", title: "State", kind: "word", sort: stateOf, render: textCell(stateOf) },
      { key: "use", title: "Use", kind: "seconds", numeric: true, sort: share, descends: true, render: textCell((row) => percent(share(row))) },
      ...[["services", 1], ["guaranteed", 2], ["surplus", 3], ["free", 4]].map(([title, place]) => ({
        key: title, title: title[0].toUpperCase() + title.slice(1), kind: "seconds", numeric: true, descends: true,
        sort: (row) => (place === 4 ? this.amounts(row)[0] - this.used(row) : this.amounts(row)[place]), render: textCell(of(place)),
      })),
      { key: "fits", title: "Fits now", kind: "seconds", numeric: true, sort: (row) => row.fitsNow, descends: true, render: textCell((row) => (row.fitsNow === null ? "–" : count(row.fitsNow))) },
      { key: "labels", title: "Labels", render: (cell, row) => { setText(cell, row.labels); cell.title = row.labels; } },
    ];
  }

  /** The details of one node. */
  async load(name) {
    try {
      const node = await get(`/api/v1/nodes/${encodeURIComponent(name)}`);
      this.detail.replaceChildren(...nodeDetail(node));
    } catch (error) {
      this.detail.replaceChildren(h("p", { class: "empty" }, error.message));
    }
  }
}

function nodeDetail(node) {
  const pods = node.pods ?? [];
  const labels = Object.entries(node.labels ?? {}).map(([name, value]) => h("li", {}, `${name}${value ? `=${value}` : ""}`));
  const taints = (node.taints ?? []).map((taint) => h("li", {}, typeof taint === "string" ? taint : [taint.key, taint.value].filter(Boolean).join("=") + `:${taint.effect}`));
  const rows = pods.map((pod) => h("tr", {}, h("th", { scope: "row" }, h("span", { class: "soft" }, `${pod.namespace}/`), pod.name), h("td", {}, pod.kind), h("td", {}, pod.tier ?? ""),
    h("td", {}, pod.job ? jobLink(pod.job.includes("/") ? pod.job : `${pod.namespace}/${pod.job}`) : ""), h("td", {}, Object.entries(pod.requests ?? {}).map(([name, value]) => `${value} ${name}`).join(", "))));
  return [
    labels.length ? h("ul", { class: "tags" }, labels) : "",
    taints.length ? h("div", {}, h("h3", {}, "Taints"), h("ul", { class: "tags" }, taints)) : "",
    h("h3", {}, counted(pods.length, "pod")),
    h("div", { class: "scroll" }, h("table", { class: "plain", "aria-label": "Pods of the node" }, h("thead", {}, h("tr", {}, ["Pod", "Kind", "Tier", "Job", "Requests"].map((head) => h("th", { scope: "col" }, head)))), h("tbody", {}, rows))),
  ];
}

function toRow([name, flags, amounts, fitsNow, fitsWithoutSurplus, labels]) {
  const shown = Object.entries(labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ");
  return { name, flags, amounts, fitsNow: fitsNow ?? null, fitsWithoutSurplus: fitsWithoutSurplus ?? null, labels: shown, text: `${name} ${shown}`.toLowerCase() };
}

function stateOf(row) {
  const words = [];
  if (!(row.flags & READY)) words.push("not ready");
  if (row.flags & CORDONED) words.push("cordoned");
  if (row.flags & LEAVING) words.push("pods terminating");
  if (row.flags & TAINTED && !words.length) words.push("tainted");
  return words.join(", ") || "ready";
}

export function nodesView(page, name) {
  return new Nodes(page, name);
}
