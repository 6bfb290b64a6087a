// All nodes on one canvas: each cell fills up with services and training, or is darker the more trainers of a job fit.

import { h, setAttribute, setText } from "./dom.js";

const MAX_CELL = 84;
const MIN_CELL = 7;
const LABEL_CELL = 60;
const GAP_SHARE = 0.12;
const MAX_HEIGHT = 520;

/**
 * describe: item -> text, for tooltips and screen readers. select: item => void.
 * Items: {key, label, parts: [{color, share}], tone: 0..1 or null, marked, badge}.
 */
export class HeatMap {
  constructor({ label, describe, select }) {
    Object.assign(this, { label, describe, select });
    this.items = [];
    this.index = -1;
    this.selected = null;
    this.canvas = h("canvas", { class: "heat", role: "img", tabindex: 0 });
    this.tip = h("div", { class: "tip", hidden: true });
    this.spoken = h("div", { class: "visually-hidden", "aria-live": "polite" });
    this.element = h("div", { class: "heat-frame" }, this.canvas, this.tip, this.spoken);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.show(-1));
    this.canvas.addEventListener("click", (event) => this.choose(this.hit(event)));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("focus", () => this.draw());
    this.canvas.addEventListener("blur", () => this.show(-1));
    this.colors = null;
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.onScheme = () => {
      this.colors = null;
      this.draw();
    };
    this.scheme.addEventListener("change", this.onScheme);
    this.observer = new ResizeObserver((entries) => {
      const width = Math.floor(entries[0].contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    });
    this.observer.observe(this.element);
  }

  destroy() {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.onScheme);
  }

  setItems(items, selected) {
    this.items = items;
    this.selected = selected;
    setAttribute(this.canvas, "aria-label", `${this.label}: ${items.length} nodes. Arrow keys read one after the other, Enter opens it.`);
    this.draw();
    if (this.index >= items.length) this.show(-1);
  }

  /** Returns the cell size with which all nodes fit into the frame; the frame grows if that is too small. */
  layOut() {
    let cell = MAX_CELL;
    let columns = 1;
    for (; cell > MIN_CELL; cell -= 1) {
      columns = Math.max(1, Math.floor(this.width / cell));
      if (Math.ceil(this.items.length / columns) * cell <= MAX_HEIGHT) break;
    }
    this.cell = cell;
    this.columns = Math.max(1, Math.floor(this.width / cell));
    this.rows = Math.ceil(this.items.length / this.columns);
  }

  palette() {
    const style = getComputedStyle(this.element);
    const names = ["services", "guaranteed", "surplus", "free", "accent", "bad", "ink", "panel", "ink-soft"];
    this.colors = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  }

  draw() {
    if (!this.width || !this.items.length) {
      this.canvas.hidden = true;
      return;
    }
    this.canvas.hidden = false;
    if (!this.colors) this.palette();
    this.layOut();
    const ratio = devicePixelRatio || 1;
    const height = this.rows * this.cell;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    this.items.forEach((item, index) => this.drawCell(pen, item, index));
    this.outline(pen, this.items.findIndex((item) => item.key === this.selected), this.colors.ink);
    this.outline(pen, this.index, this.colors.accent);
  }

  place(index) {
    const gap = this.cell >= 12 ? Math.max(1, Math.round(this.cell * GAP_SHARE)) : 1;
    return [(index % this.columns) * this.cell, Math.floor(index / this.columns) * this.cell, this.cell - gap];
  }

  drawCell(pen, item, index) {
    const [x, y, size] = this.place(index);
    pen.fillStyle = this.colors.free;
    pen.fillRect(x, y, size, size);
    if (item.tone !== null) {
      pen.globalAlpha = item.tone;
      pen.fillStyle = this.colors.accent;
      pen.fillRect(x, y, size, size);
      pen.globalAlpha = 1;
    }
    let bottom = y + size;
    for (const part of item.parts) {
      const high = Math.min(bottom - y, part.share * size);
      pen.fillStyle = this.colors[part.color];
      pen.fillRect(x, bottom - high, size, high);
      bottom -= high;
    }
    if (item.marked) this.mark(pen, x, y, size);
    if (this.cell >= LABEL_CELL) this.write(pen, item, x, y, size);
  }

  mark(pen, x, y, size) {
    pen.strokeStyle = this.colors.bad;
    pen.lineWidth = size > 20 ? 2 : 1;
    pen.beginPath();
    pen.moveTo(x + 1, y + 1);
    pen.lineTo(x + size - 1, y + size - 1);
    pen.moveTo(x + size - 1, y + 1);
    pen.lineTo(x + 1, y + size - 1);
    pen.stroke();
  }

  write(pen, item, x, y, size) {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, size, size);
    pen.clip();
    pen.font = "600 11px ui-sans-serif, Arial, sans-serif";
    const width = Math.min(pen.measureText(item.label).width, size - 14);
    pen.fillStyle = this.colors.panel;
    pen.globalAlpha = 0.88;
    pen.fillRect(x + 3, y + 4, width + 8, 17);
    pen.globalAlpha = 1;
    pen.fillStyle = this.colors.ink;
    pen.textBaseline = "middle";
    pen.fillText(item.label, x + 7, y + 13, size - 14);
    if (item.badge) {
      pen.font = "600 20px ui-sans-serif, Arial, sans-serif";
      pen.textAlign = "center";
      pen.fillText(item.badge, x + size / 2, y + size / 2 + 10);
    }
    pen.restore();
  }

  outline(pen, index, color) {
    if (index < 0) return;
    const [x, y, size] = this.place(index);
    pen.strokeStyle = color;
    pen.lineWidth = this.cell > 20 ? 3 : 2;
    pen.strokeRect(x, y, size, size);
  }

  hit(event) {
    const frame = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - frame.left) / this.cell);
    const row = Math.floor((event.clientY - frame.top) / this.cell);
    const index = row * this.columns + column;
    return column >= 0 && column < this.columns && index < this.items.length ? index : -1;
  }

  point(event) {
    this.show(this.hit(event), { quiet: true });
  }

  onKey(event) {
    const here = this.index < 0 ? 0 : this.index;
    const first = this.index < 0;
    const steps = {
      ArrowLeft: here - 1, ArrowRight: first ? 0 : here + 1, ArrowUp: here - this.columns, ArrowDown: first ? 0 : here + this.columns,
      Home: 0, End: this.items.length - 1,
    };
    if (event.key === "Enter" || event.key === " ") this.choose(this.index);
    else if (event.key === "Escape") this.show(-1);
    else if (event.key in steps) {
      const wanted = steps[event.key];
      if (wanted >= 0 && wanted < this.items.length) this.show(wanted);
    } else return;
    event.preventDefault();
  }

  choose(index) {
    if (index >= 0) this.select(this.items[index]);
  }

  show(index, { quiet = false } = {}) {
    if (index === this.index) return;
    this.index = index;
    this.tip.hidden = index < 0;
    this.draw();
    if (index < 0) return;
    const [x, y, size] = this.place(index);
    const text = this.describe(this.items[index]);
    setText(this.tip, text);
    const isRight = x > this.width / 2;
    this.tip.style.left = isRight ? "" : `${x + size + 8}px`;
    this.tip.style.right = isRight ? `${this.width - x + 8}px` : "";
    this.tip.style.top = `${Math.max(0, y - 8)}px`;
    if (!quiet) setText(this.spoken, text);
  }
}
