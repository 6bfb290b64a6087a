// Bursts of services that took capacity from training, each with its stages, and one of them in detail.

import { burstDetail } from "../burst.js";
import { h, setText } from "../dom.js";
import { age, count, counted, duration, moment } from "../format.js";
import { Objective } from "../objective.js";
import { longestBurst, section, STAGES, stageBar, stageLegend, total } from "../parts.js";
import { Table, textCell } from "../table.js";

class Reclaims {
  constructor(page, id = null) {
    this.page = page;
    this.id = id;
    this.title = "Reclaims";
    this.sections = ["reclaims", "objective"];
    this.parameters = {};
    this.longest = 1;
    this.table = new Table({
      label: "Bursts of services",
      keyOf: (burst) => burst.id,
      onOpen: (burst) => page.go(`#/reclaims/${encodeURIComponent(burst.id)}`),
      sortBy: "since",
      descending: true,
      empty: "The records show no service that took capacity from training.",
      columns: [
        { key: "since", title: "When", kind: "time", sort: (burst) => burst.since, descends: true, render: (cell, burst) => this.since(cell, burst) },
        { key: "asked", title: "Asked", kind: "groups", sort: (burst) => total(burst.services), descends: true, render: textCell((burst) => groups(burst.services)) },
        { key: "gave", title: "Gave", kind: "groups", sort: (burst) => total(burst.trainers), descends: true, render: textCell((burst) => groups(burst.trainers) || "nobody") },
        { key: "stages", title: "Seconds by stage, median", kind: "stages", sort: (burst) => burst.stages?.total?.median ?? null, descends: true, render: (cell, burst) => cell.replaceChildren(stageBar(burst, this.longest), h("span", { class: "visually-hidden" }, stageText(burst))) },
        { key: "slowest", title: "Slowest", kind: "seconds", numeric: true, sort: (burst) => burst.stages?.total?.max ?? null, descends: true, render: textCell((burst) => (burst.stages?.total?.max === undefined ? (burst.over ? "–" : "…") : duration(burst.stages.total.max))) },
        { key: "lost", title: "Lost", kind: "seconds", numeric: true, sort: (burst) => burst.lostSeconds ?? 0, descends: true, render: textCell((burst) => duration(burst.lostSeconds ?? 0)) },
      ],
    });
    this.objective = new Objective();
    this.detail = h("div", { class: "detail" });
    this.count = h("span", { class: "soft" });
    this.element = h(
      "div",
      { class: "view" },
      h("h1", {}, id ? "Reclaim" : "Reclaims"),
      id ? [h("p", {}, h("a", { href: "#/reclaims" }, "All reclaims")), section("This burst", {}, this.detail)] : null,
      section("Bursts of services", { aside: this.count }, stageLegend(), this.table.element),
      id ? null : section("Reclaim objective", {}, this.objective.element),
    );
    this.table.element.classList.add(id ? "short" : "tall");
  }

  destroy() {
    this.table.destroy();
    this.objective.destroy();
  }

  tick() {
    this.table.draw();
  }

  update(changed = new Set(["reclaims", "objective"])) {
    const { model } = this.page;
    if (changed.has("objective")) this.objective.set(model.objective, this.page.me.objective);
    if (!changed.has("reclaims")) return;
    const bursts = model.bursts();
    this.longest = longestBurst(bursts);
    setText(this.count, model.hasReclaims ? counted(bursts.length, "burst") : "");
    this.table.setRows(bursts);
    if (!this.id || !model.hasReclaims) return;
    const burst = bursts.find((candidate) => candidate.id === this.id);
    this.detail.replaceChildren(burst ? burstDetail(burst, model.now) : h("p", { class: "empty" }, "This burst is no longer recorded, or you do not have permission to see it."));
  }

  since(cell, burst) {
    setText(cell, burst.over ? `${age(burst.since, this.page.model.now)} ago` : "ongoing");
    cell.title = moment(burst.since);
    cell.classList.toggle("tone-warn", !burst.over);
  }
}

function groups(all) {
  return Object.entries(all ?? {}).map(([name, group]) => `${count(group.count ?? 0)} ${name}`).join(", ");
}

function stageText(burst) {
  return STAGES.map((stage) => `${stage} ${duration(burst.stages?.[stage]?.median ?? 0)}`).join(", ");
}

export function reclaimsView(page, id) {
  return new Reclaims(page, id);
}
