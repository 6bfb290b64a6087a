// A job's training as reported by its master, which is asked every few seconds while the page is visible.

import { get, keyPath } from "./api.js";
import { TimeChart } from "./chart.js";
import { h, keyed, setText } from "./dom.js";
import { count, counted, number, percent } from "./format.js";
import { section, select, setOptions, Tile, tiles } from "./parts.js";

const EVERY_MS = 5_000;
const LATER_MS = 30_000;
const RATE_S = 60;

export class Training {
  /** onNews: called when the master has answered. */
  constructor(page, key, onNews) {
    this.page = page;
    this.onNews = onNews;
    this.path = `/api/v1/jobs/${keyPath(key)}/training`;
    this.metric = "loss";
    this.seen = [];
    this.note = h("p", { class: "empty" }, "Asking the job's master …");
    this.tiles = Object.fromEntries(["State", "Steps", "Records per second", "Records trained again"].map((title) => [title, new Tile(title)]));
    this.datasets = h("ul", { class: "datasets" });
    this.metrics = select("Metric", [["loss", "loss"]], "loss", (value) => this.set(value));
    this.chart = new TimeChart({ label: "Evaluations", series: [], format: number, kind: "line", height: 180, xFormat: (value) => (Number.isInteger(value) ? count(value) : ""), xTitle: "Model version" });
    this.evaluations = h("div", {}, h("div", { class: "line" }, h("h3", {}, "Evaluations"), this.metrics), this.chart.element);
    this.redone = h("p", { class: "soft" });
    this.rollbacks = h("ul", { class: "plain-list" });
    this.body = h("div", { class: "stack", hidden: true }, tiles(...Object.values(this.tiles)), this.datasets, this.evaluations, h("div", {}, h("h3", {}, "Repeated work"), this.redone, this.rollbacks));
    this.element = section("Training", { css: "training" }, this.note, this.body);
    this.onSight = () => !document.hidden && this.isAsking && this.ask();
    document.addEventListener("visibilitychange", this.onSight);
  }

  destroy() {
    document.removeEventListener("visibilitychange", this.onSight);
    this.stop();
    this.chart.destroy();
  }

  stop() {
    this.isAsking = false;
    clearTimeout(this.timer);
    this.controller?.abort();
  }

  /** Starts to ask, if the job has a master. */
  follow(job) {
    if (!job.masterAddress) {
      this.stop();
      this.say(job.master ? "The job's master is not running." : "The job has no EDL master, so only its own program knows the state of its training.");
      return;
    }
    if (this.isAsking) return;
    this.isAsking = true;
    this.ask();
  }

  async ask() {
    clearTimeout(this.timer);
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    let pause = EVERY_MS;
    try {
      this.draw(await get(this.path, { signal: controller.signal }));
    } catch (error) {
      if (error.name === "AbortError") return;
      this.say(error.message);
      pause = Math.max(error.status === 403 ? LATER_MS : EVERY_MS, error.retryAfter * 1000);
    }
    if (this.isAsking && this.controller === controller && !document.hidden) this.timer = setTimeout(() => this.ask(), pause);
  }

  /** The master's report about a trainer; undefined if it does not know the trainer. */
  of(member) {
    const trainers = this.newest?.trainers ?? {};
    return trainers[member.name] ?? trainers[`trainer-${member.id}`];
  }

  say(text) {
    setText(this.note, text);
    this.note.hidden = !text;
    this.body.hidden = Boolean(text);
  }

  set(metric) {
    this.metric = metric;
    if (this.newest) this.drawEvaluations(this.newest);
  }

  draw(training) {
    this.newest = training;
    this.say("");
    const tone = { failed: "bad", done: "good" }[training.state] ?? "";
    const words = { work: "training", done: "done", failed: "failed" };
    this.tiles.State.set(words[training.state] ?? training.state, training.reason || training.storageErrors?.join("; ") || `master generation ${training.generation}`, training.storageErrors?.length ? "bad" : tone);
    this.tiles.Steps.set(count(training.steps ?? 0), training.maxSteps ? `of ${count(training.maxSteps)}` : training.checkpoint ? `newest checkpoint at step ${count(training.checkpoint.step ?? 0)}` : "no checkpoint yet");
    this.drawRate(training);
    this.drawRedone(training);
    this.drawDatasets(training.datasets ?? {});
    this.drawEvaluations(training);
    this.onNews();
  }

  /** Records per second, over the last minute of observation. */
  drawRate(training) {
    const done = Object.values(training.datasets ?? {}).reduce((sum, dataset) => sum + (dataset.done_records ?? 0), 0);
    this.seen.push([training.at, done]);
    while (this.seen.length > 2 && this.seen[1][0] <= training.at - RATE_S) this.seen.shift();
    const [[since, before]] = this.seen;
    const rate = training.at > since ? Math.max(0, done - before) / (training.at - since) : null;
    this.tiles["Records per second"].set(rate === null ? "–" : number(rate >= 10 ? Math.round(rate) : rate), `${count(done)} done`);
  }

  drawRedone(training) {
    const rollbacks = training.setbacks ?? { count: 0, newest: [] };
    const rewound = Object.values(training.datasets ?? {}).reduce((sum, dataset) => sum + (dataset.redone_records ?? 0), 0);
    this.tiles["Records trained again"].set(count((training.lostRecords ?? 0) + rewound), `${count(training.trainedAgainRecords ?? 0)} acknowledged twice`);
    setText(this.redone, `${counted(training.lostRecords ?? 0, "record")} trained and then lost with their trainers. ${counted(rollbacks.count ?? 0, "rollback")} to a checkpoint: ${counted(rollbacks.steps ?? 0, "step")} and ${counted(rollbacks.records ?? 0, "record")} of the model's state lost, and the data set back by ${counted(rewound, "record")}.`);
    this.rollbacks.replaceChildren(...[...(rollbacks.newest ?? [])].reverse().map((event) =>
      h("li", {}, h("b", {}, event.by), `: ${event.reason} `, h("span", { class: "soft" }, `(${counted(event.steps ?? 0, "step")}, ${counted(event.records ?? 0, "record")})`))));
  }

  drawDatasets(datasets) {
    keyed(this.datasets, Object.entries(datasets), ([name]) => name, () => h("li", { class: "dataset" }), (element, [name, dataset]) => {
      const whole = (dataset.records ?? 0) * (dataset.epochs ?? 0);
      const done = (dataset.done_records ?? 0) + (dataset.dropped_records ?? 0);
      const share = whole ? Math.min(1, done / whole) : null;
      const epoch = `epoch ${count(Math.min((dataset.epoch ?? 0) + 1, dataset.epochs || 1))} of ${count(dataset.epochs || 1)}`;
      const parts = [epoch, `${count(dataset.done_records ?? 0)}${whole ? ` of ${count(whole)}` : ""} records`, `${counted(dataset.leased_tasks ?? 0, "task")} leased`];
      if (dataset.dropped_tasks) parts.push(`${counted(dataset.dropped_tasks, "task")} dropped`);
      const bar = h("progress", { max: 1, "aria-label": `${name} done` });
      if (share !== null) bar.value = share;
      element.replaceChildren(h("div", { class: "line" }, h("b", {}, name), h("span", { class: "soft" }, parts.join(", ")), h("b", {}, share === null ? "" : percent(share, share < 0.1 ? 1 : 0))), bar,
        dataset.outage ? h("p", { class: "problem" }, `Unreadable, so trainers are waiting: ${dataset.outage}`) : "");
    });
  }

  drawEvaluations(training) {
    const evaluations = (training.evaluations ?? []).filter((evaluation) => evaluation.complete !== false);
    const names = [...new Set(evaluations.flatMap((evaluation) => Object.keys(evaluation.metrics ?? {})))].sort();
    this.evaluations.hidden = !names.length;
    if (!names.length) return;
    if (!names.includes(this.metric)) [this.metric] = names;
    setOptions(this.metrics, names.map((name) => [name, name]), this.metric);
    const datasets = [...new Set(evaluations.map((evaluation) => evaluation.dataset))].sort();
    const times = [...new Set(evaluations.map((evaluation) => evaluation.model_version))].sort((a, b) => a - b);
    const values = Object.fromEntries(datasets.map((dataset) => {
      const known = new Map(evaluations.filter((evaluation) => evaluation.dataset === dataset).map((evaluation) => [evaluation.model_version, evaluation.metrics?.[this.metric] ?? null]));
      return [dataset, times.map((version) => known.get(version) ?? null)];
    }));
    this.chart.setData({ times, values, limit: null }, { series: datasets.map((dataset, index) => ({ key: dataset, title: `${this.metric}, ${dataset}`, css: `line-${index + 1}` })) });
  }
}
