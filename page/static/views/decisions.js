// Decisions and observations, newest first, with a filter, reasons and figures.

import { get, path } from "../api.js";
import { h, setText } from "../dom.js";
import { age, count, counted, moment } from "../format.js";
import { recordKey } from "../model.js";
import { codeChip, figureList, jobHref, section, select, setOptions } from "../parts.js";
import { Table } from "../table.js";

const OLDER = "200";

class Decisions {
  constructor(page, namespace = "", name = "") {
    this.page = page;
    this.title = "Decisions";
    this.sections = ["records"];
    this.parameters = {};
    this.filter = namespace && `${namespace}/${name}`;
    this.code = "";
    this.chosen = null;
    this.search = h("input", { type: "search", placeholder: "Filter: job, pod, text", "aria-label": "Filter decisions", value: this.filter, oninput: () => this.set({ filter: this.search.value }) });
    this.codes = select("Code", [["", "All codes"]], "", (value) => this.set({ code: value }));
    this.count = h("span", { class: "soft", role: "status" });
    this.older = h("button", { type: "button", class: "quiet", onclick: () => this.loadOlder() }, "Load older decisions");
    this.olderNote = h("span", { class: "soft", role: "status" });
    this.detail = h("aside", { class: "drawer", "aria-label": "Decision", hidden: true });
    this.table = new Table({
      label: "Decisions",
      keyOf: recordKey,
      onOpen: (record) => this.open(record),
      sortBy: "at",
      descending: true,
      empty: "",
      columns: [
        { key: "at", title: "When", kind: "time", sort: (record) => record.at, descends: true, render: (cell, record) => this.renderWhen(cell, record) },
        { key: "code", title: "Reason", kind: "code", sort: (record) => record.code, render: renderCode },
        { key: "about", title: "About", kind: "about", sort: (record) => record.about, render: renderAbout },
        { key: "text", title: "Explanation", render: (cell, record) => { setText(cell, record.text || record.meaning || ""); cell.title = record.text || record.meaning || ""; } },
      ],
    });
    this.table.element.classList.add("tall");
    this.element = h(
      "div",
      { class: "view" },
      h("h1", {}, "Decisions"),
      section("What was decided, and why", { aside: h("div", { class: "controls" }, this.count, this.codes, this.search) }, this.table.element, h("div", { class: "more" }, this.older, this.olderNote)),
      this.detail,
    );
  }

  destroy() {
    this.table.destroy();
  }

  set(values) {
    Object.assign(this, values);
    this.update();
  }

  tick() {
    this.table.draw();
  }

  update() {
    const { model } = this.page;
    if (!model.hasRecords) return;
    const found = [...new Set(model.records.map((record) => record.code))].sort();
    setOptions(this.codes, [["", "All codes"], ...found.map((code) => [code, code])], this.code);
    const words = this.filter.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = model.records.filter((record) => (!this.code || record.code === this.code) && matches(record, words));
    const isNarrowed = words.length || this.code;
    setText(this.count, isNarrowed ? `${count(rows.length)} of ${counted(model.records.length, "decision")}` : counted(rows.length, "decision"));
    setText(this.table.note, isNarrowed ? "No decision matches the filter." : "Nothing has been decided yet.");
    this.table.setRows(rows);
  }

  async loadOlder() {
    const { model } = this.page;
    this.older.disabled = true;
    try {
      const before = model.records[0]?.at ?? model.now;
      const answer = await get(path("/api/v1/records", { namespace: this.page.namespace, before: String(before), limit: OLDER }));
      model.addOlder(answer.records);
      setText(this.olderNote, answer.more ? `${count(answer.records.length)} older decisions loaded` : "No older decisions are kept.");
      this.older.disabled = !answer.more;
      this.update();
    } catch (error) {
      setText(this.olderNote, error.message);
      this.older.disabled = false;
    }
  }

  /** Shows one decision in full. */
  open(record) {
    const back = document.activeElement;
    const close = () => {
      this.detail.hidden = true;
      back?.isConnected && back.focus();
    };
    const link = record.job ? h("p", {}, h("a", { href: jobHref(record.job) }, `Job ${record.job}`)) : null;
    const closer = h("button", { type: "button", class: "quiet", onclick: close }, "Close");
    this.detail.replaceChildren(h("header", {}, h("h2", {}, record.about), closer), codeChip(record.code), h("p", { class: "sentence" }, record.text || record.meaning), figureList(record), link ?? "");
    this.detail.onkeydown = (event) => event.key === "Escape" && close();
    this.detail.hidden = false;
    closer.focus();
  }

  renderWhen(cell, record) {
    setText(cell, `${age(record.at, this.page.model.now)} ago`);
    cell.title = moment(record.at);
  }
}

function matches(record, words) {
  const text = `${record.about} ${record.job} ${record.code} ${record.text}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

function renderCode(cell, record) {
  if (cell.shownText === record.code) return;
  cell.shownText = record.code;
  cell.replaceChildren(codeChip(record.code, record.meaning));
}

function renderAbout(cell, record) {
  if (cell.shownText === record.about) return;
  cell.shownText = record.about;
  const kind = record.about.split(" ")[0];
  const name = record.about.slice(kind.length + 1);
  const text = h("span", { class: "name", title: record.about }, h("span", { class: "soft" }, `${kind} `), name);
  cell.replaceChildren(kind === "job" ? h("a", { href: jobHref(name), tabindex: -1, class: "name", title: record.about }, h("span", { class: "soft" }, "job "), name) : text);
}

export function decisionsView(page, namespace, name) {
  return new Decisions(page, namespace, name);
}
