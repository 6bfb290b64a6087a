// Values over time as SVG: stacked areas, steps, bars or lines. They can be read with the pointer, arrow keys, or as a table.

import { h, setAttribute, setText, svg } from "./dom.js";
import { clock, tickTime } from "./format.js";
import { thinned, ticks, timeTicks } from "./scale.js";

const MARGIN = { top: 10, right: 12, bottom: 24, left: 56 };
const TABLE_ROWS = 60;

/**
 * series: [{key, title, css}], drawn from the bottom up. kind: area, steps (a value holds until the next), bars (a value covers the time before it), line.
 * format: value -> text. binary: ticks of bytes. `limit` of the data is drawn as a line on top, titled `limitTitle`.
 */
export class TimeChart {
  constructor({ label, series, format, kind = "area", binary = false, limitTitle = "", height = 220, xFormat = null, xTitle = "Time" }) {
    Object.assign(this, { label, series, format, kind, binary, limitTitle, height, xFormat, xTitle });
    this.data = { times: [], values: {}, limit: null };
    this.width = 0;
    this.at = null;
    this.plot = svg("g");
    this.cross = svg("line", { class: "cross", visibility: "hidden" });
    this.picture = svg("svg", { class: "plot", role: "img", tabindex: 0, height }, this.plot, this.cross);
    this.tip = h("div", { class: "tip", hidden: true });
    this.spoken = h("div", { class: "visually-hidden", "aria-live": "polite" });
    this.legend = h("ul", { class: "legend" });
    this.note = h("p", { class: "empty" }, "No figures yet.");
    this.tableBody = h("div", { class: "chart-table" });
    this.details = h("details", { ontoggle: () => this.fillTable() }, h("summary", {}, "As a table"), this.tableBody);
    this.element = h("figure", { class: "chart" }, this.legend, h("div", { class: "canvas" }, this.picture, this.tip, this.note), this.spoken, this.details);
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.read(null));
    this.picture.addEventListener("blur", () => this.read(null));
    this.picture.addEventListener("keydown", (event) => this.onKey(event));
    this.observer = new ResizeObserver((entries) => {
      const width = Math.floor(entries[0].contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    });
    this.observer.observe(this.element.querySelector(".canvas"));
  }

  destroy() {
    this.observer.disconnect();
  }

  /** data: {times, values: {key: [number or null]}, limit: [..] or null} */
  setData(data, { series, format, binary } = {}) {
    if (series) this.series = series;
    if (format) this.format = format;
    if (binary !== undefined) this.binary = binary;
    this.data = data;
    this.draw();
    if (this.details.open) this.fillTable();
  }

  get isStacked() {
    return this.kind !== "line";
  }

  get shown() {
    return this.series.filter((line) => this.data.values[line.key]?.some((value) => value !== null));
  }

  draw() {
    if (!this.width) return;
    const { times } = this.data;
    const isEmpty = times.length < 2 || !this.shown.length;
    this.note.hidden = !isEmpty;
    setAttribute(this.picture, "width", this.width);
    setAttribute(this.picture, "viewBox", `0 0 ${this.width} ${this.height}`);
    this.drawLegend();
    this.plot.replaceChildren();
    if (isEmpty) {
      setAttribute(this.picture, "aria-label", `${this.label}: no figures yet`);
      return;
    }
    const marks = ticks(this.top(), { binary: this.binary });
    const highest = marks.at(-1);
    const right = this.width - MARGIN.right;
    const bottom = this.height - MARGIN.bottom;
    const [from, to] = [times[0], times.at(-1)];
    this.x = (at) => MARGIN.left + ((at - from) / (to - from || 1)) * (right - MARGIN.left);
    this.y = (value) => bottom - (value / highest) * (bottom - MARGIN.top);
    this.drawAxes(marks, from, to, right, bottom);
    const indexes = thinned(times.length, right - MARGIN.left);
    if (this.kind === "bars") this.drawBars();
    else if (this.isStacked) this.drawAreas(indexes);
    else this.drawLines(indexes);
    if (this.data.limit) this.plot.append(svg("path", { class: "limit", d: this.path(indexes, this.data.limit) }));
    setAttribute(this.picture, "aria-label", `${this.label}. Newest: ${this.words(times.length - 1)}. Arrow keys read other times.`);
    if (this.at !== null) this.read(Math.min(this.at, times.length - 1), { quiet: true });
  }

  top() {
    const { times, values, limit } = this.data;
    let top = limit ? Math.max(...limit.filter((value) => value !== null), 0) : 0;
    for (let index = 0; index < times.length; index += 1) {
      const here = this.shown.map((line) => values[line.key][index] ?? 0);
      top = Math.max(top, this.isStacked ? here.reduce((sum, value) => sum + value, 0) : Math.max(...here));
    }
    return top;
  }

  drawAxes(marks, from, to, right, bottom) {
    for (const mark of marks) {
      const y = this.y(mark);
      this.plot.append(
        svg("line", { class: mark ? "grid" : "axis", x1: MARGIN.left, x2: right, y1: y, y2: y }),
        svg("text", { class: "tick", x: MARGIN.left - 8, y: y + 4, "text-anchor": "end" }, this.format(mark)),
      );
    }
    const most = Math.max(2, Math.floor((right - MARGIN.left) / 90));
    const { step, at } = this.xFormat ? { step: 1, at: ticks(to, { wanted: most }).filter((mark) => mark >= from && mark <= to) } : timeTicks(from, to, most);
    for (const mark of at) {
      const text = this.xFormat ? this.xFormat(mark) : tickTime(mark, step);
      this.plot.append(svg("text", { class: "tick", x: this.x(mark), y: bottom + 17, "text-anchor": "middle" }, text));
    }
  }

  drawAreas(indexes) {
    const { times, values } = this.data;
    let floor = indexes.map(() => 0);
    for (const line of this.shown) {
      const ceiling = indexes.map((index, place) => floor[place] + (values[line.key][index] ?? 0));
      const upper = this.edge(indexes.map((index) => times[index]), ceiling);
      const lower = this.edge(indexes.map((index) => times[index]), floor);
      this.plot.append(svg("path", { class: `area ${line.css}`, d: `M${upper.join("L")}L${lower.reverse().join("L")}Z` }));
      floor = ceiling;
    }
  }

  /** Returns the points of a line: straight, or with a corner where a value changes. */
  edge(times, values) {
    const points = [];
    values.forEach((value, place) => {
      const x = this.x(times[place]).toFixed(1);
      if (place && this.kind === "steps" && value !== values[place - 1]) points.push(`${x},${this.y(values[place - 1]).toFixed(1)}`);
      points.push(`${x},${this.y(value).toFixed(1)}`);
    });
    return points;
  }

  drawBars() {
    const { times, values } = this.data;
    for (let index = 1; index < times.length; index += 1) {
      const left = this.x(times[index - 1]) + 1;
      const width = Math.max(1, this.x(times[index]) - left - 1);
      let floor = 0;
      for (const line of this.shown) {
        const value = values[line.key][index] ?? 0;
        if (!value) continue;
        const y = this.y(floor + value);
        this.plot.append(svg("rect", { class: `area ${line.css}`, x: left.toFixed(1), y: y.toFixed(1), width: width.toFixed(1), height: (this.y(floor) - y).toFixed(1) }));
        floor += value;
      }
    }
  }

  drawLines(indexes) {
    for (const line of this.shown) {
      this.plot.append(svg("path", { class: `line ${line.css}`, d: this.path(indexes, this.data.values[line.key]) }));
    }
  }

  path(indexes, values) {
    let pen = "M";
    let text = "";
    for (const index of indexes) {
      if (values[index] === null || values[index] === undefined) {
        pen = "M";
        continue;
      }
      text += `${pen}${this.x(this.data.times[index]).toFixed(1)},${this.y(values[index]).toFixed(1)}`;
      pen = "L";
    }
    return text;
  }

  drawLegend() {
    const last = this.data.times.length - 1;
    const lines = this.isStacked ? [...this.shown].reverse() : this.shown;
    const entries = lines.map((line) =>
      h("li", {}, h("span", { class: `swatch ${line.css}` }), line.title, h("b", {}, this.text(this.data.values[line.key][last]))));
    if (this.data.limit && this.limitTitle) {
      entries.push(h("li", {}, h("span", { class: "swatch limit" }), this.limitTitle, h("b", {}, this.text(this.data.limit[last]))));
    }
    this.legend.replaceChildren(...entries);
  }

  text(value) {
    return value === null || value === undefined ? "–" : this.format(value);
  }

  when(index) {
    const at = this.data.times[index];
    return this.xFormat ? `${this.xTitle} ${this.xFormat(at)}` : clock(at);
  }

  words(index) {
    const parts = this.shown.map((line) => `${line.title} ${this.text(this.data.values[line.key][index])}`);
    return `${this.when(index)}: ${parts.join(", ")}`;
  }

  point(event) {
    if (!this.x || this.data.times.length < 2) return;
    const offset = event.clientX - this.picture.getBoundingClientRect().left;
    const { times } = this.data;
    let [low, high] = [0, times.length - 1];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.x(times[middle]) < offset) low = middle;
      else high = middle;
    }
    this.read(offset - this.x(times[low]) < this.x(times[high]) - offset ? low : high, { quiet: true });
  }

  onKey(event) {
    const last = this.data.times.length - 1;
    const here = this.at ?? last;
    const far = Math.max(1, Math.round(last / 20));
    const steps = { ArrowLeft: here - 1, ArrowRight: here + 1, PageUp: here - far, PageDown: here + far, Home: 0, End: last };
    if (event.key === "Escape") this.read(null);
    else if (event.key in steps && last > 0) this.read(Math.min(Math.max(steps[event.key], 0), last));
    else return;
    event.preventDefault();
  }

  /** Shows the values at an index next to a vertical line; null hides both. */
  read(index, { quiet = false } = {}) {
    this.at = index;
    const isHidden = index === null || !this.x || !this.shown.length;
    this.tip.hidden = isHidden;
    setAttribute(this.cross, "visibility", isHidden ? "hidden" : "visible");
    if (isHidden) return;
    const x = this.x(this.data.times[index]);
    for (const [name, value] of Object.entries({ x1: x, x2: x, y1: MARGIN.top, y2: this.height - MARGIN.bottom })) setAttribute(this.cross, name, value);
    const lines = this.isStacked ? [...this.shown].reverse() : this.shown;
    this.tip.replaceChildren(
      h("b", {}, this.when(index)),
      ...lines.map((line) => h("span", {}, h("span", { class: `swatch ${line.css}` }), line.title, h("b", {}, this.text(this.data.values[line.key][index])))),
    );
    const isRight = x > this.width / 2;
    this.tip.style.left = isRight ? "" : `${x + 12}px`;
    this.tip.style.right = isRight ? `${this.width - x + 12}px` : "";
    if (!quiet) setText(this.spoken, this.words(index));
  }

  fillTable() {
    if (!this.details.open) return;
    const indexes = thinned(this.data.times.length, TABLE_ROWS).reverse();
    const head = h("tr", {}, h("th", { scope: "col" }, this.xTitle), this.shown.map((line) => h("th", { scope: "col", class: "numeric" }, line.title)));
    const rows = indexes.map((index) =>
      h("tr", {}, h("th", { scope: "row" }, this.xFormat ? this.xFormat(this.data.times[index]) : clock(this.data.times[index])),
        this.shown.map((line) => h("td", { class: "numeric" }, this.text(this.data.values[line.key][index])))));
    this.tableBody.replaceChildren(h("table", { class: "plain", "aria-label": this.label }, h("thead", {}, head), h("tbody", {}, rows)));
  }
}
