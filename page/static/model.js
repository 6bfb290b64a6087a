// The page's model of the cluster, to which events of streams are applied in order.

const ELSEWHERE = "another namespace";
const MAX_RECORDS = 5000;
const MAX_POINTS = 4000;

export class Model {
  /** offset: seconds by which the server's clock is ahead of this machine's. */
  constructor(offset = 0) {
    this.offset = offset;
    this.usage = null;
    this.jobs = new Map();
    this.hasJobs = false;
    this.records = [];
    this.hasRecords = false;
    this.reclaims = new Map();
    this.hasReclaims = false;
    this.objective = undefined;
    this.nodes = { resources: [], rows: new Map(), fits: null, isWhole: false };
    this.job = null;
  }

  /** The server's time, in seconds, so that ages do not depend on this machine's clock. */
  get now() {
    return Date.now() / 1000 + this.offset;
  }

  setTime(at) {
    this.offset = at - Date.now() / 1000;
  }

  apply(section, data) {
    if (data?.at) this.setTime(data.at);
    this[`apply_${section}`]?.(data);
  }

  apply_usage(data) {
    if (data.reset || !this.usage) this.usage = { resources: data.resources ?? [], points: [], nodes: null, waiting: null };
    const { usage } = this;
    if (data.resources) usage.resources = data.resources;
    for (const point of data.points ?? []) {
      while (usage.points.length && usage.points.at(-1)[0] >= point[0]) usage.points.pop();
      usage.points.push(point);
    }
    if (usage.points.length > MAX_POINTS) usage.points.splice(0, usage.points.length - MAX_POINTS);
    if (data.nodes) usage.nodes = data.nodes;
    if (data.waiting) usage.waiting = data.waiting;
  }

  apply_jobs(data) {
    if (data.reset) this.jobs = new Map();
    for (const row of data.rows) this.jobs.set(row.key, row);
    for (const key of data.gone ?? []) this.jobs.delete(key);
    this.hasJobs = !data.more;
  }

  apply_records(data) {
    if (data.reset) this.records = [];
    this.records = merged([...this.records, ...data.records]).slice(-MAX_RECORDS);
    this.hasRecords = true;
  }

  /** Adds older records before the known ones. */
  addOlder(records) {
    this.records = merged([...records, ...this.records]);
  }

  apply_reclaims(data) {
    if (data.reset) this.reclaims = new Map();
    for (const row of data.rows) this.reclaims.set(`${row.namespace}/${row.id}`, row);
    this.hasReclaims = true;
  }

  apply_objective(data) {
    this.objective = data.objective;
  }

  apply_nodes(data) {
    if (data.reset) this.nodes = { resources: data.resources, rows: new Map(), fits: data.fits ?? null, isWhole: false };
    if (data.resources) this.nodes.resources = data.resources;
    if (data.fits !== undefined) this.nodes.fits = data.fits;
    for (const row of data.rows) this.nodes.rows.set(row[0], row);
    for (const name of data.gone ?? []) this.nodes.rows.delete(name);
    this.nodes.isWhole = !data.more;
  }

  apply_job(data) {
    this.job = data;
  }

  /** Bursts, newest first; one recorded in several namespaces appears once, from the cluster's log. */
  bursts() {
    const best = new Map();
    for (const row of this.reclaims.values()) {
      const known = best.get(row.id);
      if (!known || row.namespace === "edl-system") best.set(row.id, row);
    }
    return [...best.values()].sort((a, b) => b.since - a.since);
  }
}

/** The identity of a record, which may be both in its namespace's log and in the cluster's. */
export function recordKey(record) {
  return `${record.at.toFixed(3)} ${record.about} ${record.code} ${record.job}`;
}

/** Records in order of time, each once; of two versions, the one with all names. */
function merged(records) {
  const best = new Map();
  for (const record of records) {
    const key = recordKey(record);
    const isMasked = Object.values(record.figures ?? {}).includes(ELSEWHERE);
    if (!best.has(key) || !isMasked) best.set(key, record);
  }
  return [...best.values()].sort((a, b) => a.at - b.at);
}
