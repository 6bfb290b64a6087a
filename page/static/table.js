// A table of any length: only visible rows are in the document. It is sorted by its headers and navigated by arrow keys.

import { h, setAttribute, setText } from "./dom.js";

const SPARE_ROWS = 6;
const ROW_HEIGHT = 36;
const PAGE_ROWS = 10;

/**
 * columns: [{key, title, kind, numeric, sort: row -> value, descends, render: (cell, row) => void}]; without `sort`, a column is not sorted.
 * keyOf: row -> stable key; onOpen: row => void, for Enter and clicks.
 */
export class Table {
  constructor({ label, columns, keyOf, onOpen, sortBy, descending = false, empty = "Nothing here." }) {
    Object.assign(this, { label, columns, keyOf, onOpen, sortBy, descending });
    this.all = [];
    this.rows = [];
    this.active = null;
    this.drawn = new Map(); // index of a row -> its elements
    this.body = h("tbody");
    this.above = h("td", { colspan: columns.length });
    this.below = h("td", { colspan: columns.length });
    this.heads = new Map(columns.map((column) => [column.key, this.head(column)]));
    this.table = h(
      "table",
      { role: "grid", "aria-label": label },
      h("colgroup", {}, columns.map((column) => h("col", { class: `col-${column.kind ?? column.key}` }))),
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, [...this.heads.values()])),
      h("tbody", { "aria-hidden": "true" }, h("tr", {}, this.above)),
      this.body,
      h("tbody", { "aria-hidden": "true" }, h("tr", {}, this.below)),
    );
    this.note = h("p", { class: "empty" }, empty);
    this.element = h("div", { class: "rows", tabindex: -1 }, this.table, this.note);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("keydown", (event) => this.onKey(event));
    this.body.addEventListener("click", (event) => this.onClick(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
    this.markHeads();
  }

  destroy() {
    this.observer.disconnect();
  }

  head(column) {
    const classes = column.numeric ? "numeric" : null;
    if (!column.sort) return h("th", { scope: "col", class: classes }, column.title);
    const sorted = () => this.sort(column.key);
    return h(
      "th",
      { scope: "col", class: classes },
      h("button", { type: "button", class: "sort", onclick: sorted }, column.title),
    );
  }

  sort(key) {
    if (this.sortBy === key) this.descending = !this.descending;
    else {
      this.sortBy = key;
      this.descending = Boolean(this.columns.find((column) => column.key === key).descends);
    }
    this.markHeads();
    this.setRows(this.all);
  }

  markHeads() {
    for (const [key, head] of this.heads) {
      const order = key !== this.sortBy ? null : this.descending ? "descending" : "ascending";
      setAttribute(head, "aria-sort", order);
    }
  }

  /** Shows these rows, sorted. */
  setRows(rows) {
    this.all = rows;
    const column = this.columns.find((candidate) => candidate.key === this.sortBy);
    this.rows = column?.sort ? sorted(rows, column.sort, this.descending) : rows;
    setAttribute(this.table, "aria-rowcount", this.rows.length + 1);
    this.note.hidden = this.rows.length > 0;
    this.table.classList.toggle("is-empty", this.rows.length === 0);
    if (!this.rows.some((row) => this.keyOf(row) === this.active)) {
      this.active = this.rows.length ? this.keyOf(this.rows[0]) : null;
    }
    this.draw();
  }

  /** Draws the visible rows; rows that stay visible keep their elements. */
  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const inSight = Math.ceil((this.element.clientHeight || 600) / ROW_HEIGHT) + 2 * SPARE_ROWS;
    const last = Math.min(this.rows.length, first + inSight);
    const hadFocus = this.body.contains(document.activeElement);
    const unused = [...this.drawn.keys()].filter((index) => index < first || index >= last);
    for (let index = first; index < last; index += 1) {
      let entry = this.drawn.get(index);
      if (!entry) {
        const left = unused.pop();
        entry = left === undefined ? this.newRow() : this.drawn.get(left);
        this.drawn.delete(left);
        this.drawn.set(index, entry);
      }
      this.fillRow(entry, this.rows[index], index);
      const place = this.body.children[index - first];
      if (place !== entry.row) this.body.insertBefore(entry.row, place ?? null);
    }
    for (const index of unused) {
      this.drawn.get(index).row.remove();
      this.drawn.delete(index);
    }
    this.above.style.height = `${first * ROW_HEIGHT}px`;
    this.below.style.height = `${Math.max(0, this.rows.length - last) * ROW_HEIGHT}px`;
    if (hadFocus) this.focusActive();
  }

  newRow() {
    const cells = this.columns.map((column) => h("td", { class: column.numeric ? "numeric" : null, role: "gridcell" }));
    return { row: h("tr", { class: this.onOpen ? "opens" : null }, cells), cells, value: null };
  }

  fillRow(entry, row, index) {
    entry.value = row;
    setAttribute(entry.row, "aria-rowindex", index + 2);
    setAttribute(entry.row, "tabindex", this.keyOf(row) === this.active ? 0 : -1);
    this.columns.forEach((column, place) => column.render(entry.cells[place], row));
  }

  onClick(event) {
    const entry = [...this.drawn.values()].find((candidate) => candidate.row.contains(event.target));
    if (!entry?.value || event.target.closest("a, button") || getSelection()?.toString()) return;
    this.active = this.keyOf(entry.value);
    this.onOpen?.(entry.value);
  }

  onKey(event) {
    const place = this.rows.findIndex((row) => this.keyOf(row) === this.active);
    const steps = {
      ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + PAGE_ROWS, PageUp: place - PAGE_ROWS, Home: 0, End: this.rows.length - 1,
    };
    if (event.key === "Enter" && event.target.tagName === "TR" && this.onOpen && place >= 0) this.onOpen(this.rows[place]);
    else if (event.key in steps) this.move(steps[event.key]);
    else return;
    event.preventDefault();
  }

  move(wanted) {
    const place = Math.min(Math.max(wanted, 0), this.rows.length - 1);
    if (place < 0) return;
    this.active = this.keyOf(this.rows[place]);
    const top = place * ROW_HEIGHT;
    const height = this.element.clientHeight - ROW_HEIGHT; // the header stays visible
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + ROW_HEIGHT > this.element.scrollTop + height) this.element.scrollTop = top + ROW_HEIGHT - height;
    this.draw();
    this.focusActive();
  }

  focusActive() {
    const entry = [...this.drawn.values()].find((candidate) => candidate.value && this.keyOf(candidate.value) === this.active);
    if (entry?.row.isConnected && document.activeElement !== entry.row) entry.row.focus({ preventScroll: true });
  }
}

/** Sorts rows by a value: numbers numerically, texts by locale, unknown values last. */
export function sorted(rows, valueOf, descending) {
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const sign = descending ? -1 : 1;
  const keys = rows.map((row, index) => ({ row, index, value: valueOf(row) }));
  keys.sort((a, b) => {
    const unknown = Number(a.value === null || a.value === undefined) - Number(b.value === null || b.value === undefined);
    if (unknown) return unknown;
    const order = typeof a.value === "number" && typeof b.value === "number" ? a.value - b.value : compare(String(a.value), String(b.value));
    return sign * order || a.index - b.index;
  });
  return keys.map((key) => key.row);
}

/** Renders text into a cell. */
export function textCell(valueOf) {
  return (cell, row) => setText(cell, valueOf(row) ?? "");
}
