// Series of numbers that hold until the next one, such as trainers of jobs, sampled at equal steps.

const KEPT_S = 3900;

/** Equal steps from `span` seconds before `now`, at multiples of the step so that points do not move. */
export function grid(now, span, points) {
  const step = span / points;
  const last = Math.floor(now / step) * step;
  return [...Array.from({ length: points }, (_, index) => last - (points - 1 - index) * step), now];
}

/** Series of [at, value] for each key. */
export class StepSeries {
  constructor() {
    this.series = new Map();
  }

  /** The time of the first value of all. */
  get first() {
    return Math.min(...[...this.series.values()].map((steps) => steps[0][0]));
  }

  /** Adds earlier values, {key: [[at, value], ...]}; newer ones are kept. */
  begin(known) {
    for (const [key, steps] of Object.entries(known)) {
      const own = this.series.get(key) ?? [];
      const earlier = own.length ? steps.filter(([at]) => at < own[0][0]) : steps;
      this.series.set(key, [...earlier, ...own]);
    }
  }

  /** Adds the present rows {key, trainers}. */
  add(rows, now) {
    const seen = new Set();
    for (const { key, trainers } of rows) {
      seen.add(key);
      this.push(key, trainers, now);
    }
    for (const key of this.series.keys()) if (!seen.has(key)) this.push(key, 0, now);
  }

  push(key, value, at) {
    const steps = this.series.get(key) ?? [];
    if (steps.at(-1)?.[1] !== value) steps.push([at, value]);
    while (steps.length > 1 && steps[1][0] < at - KEPT_S) steps.shift();
    this.series.set(key, steps);
  }

  /** The values at times; null before the first. */
  at(key, times) {
    const steps = this.series.get(key) ?? [];
    let place = -1;
    return times.map((time) => {
      while (place + 1 < steps.length && steps[place + 1][0] <= time) place += 1;
      return place < 0 ? null : steps[place][1];
    });
  }

  /** The keys with the greatest values since a time, in an order that is stable between updates. */
  largest(since, most) {
    const peaks = [...this.series].map(([key, steps]) => {
      const recent = steps.filter(([at], index) => at >= since || index === steps.length - 1 || steps[index + 1][0] >= since);
      return { key, peak: Math.max(0, ...recent.map(([, value]) => value)) };
    });
    const first = peaks.filter(({ peak }) => peak > 0).sort((a, b) => b.peak - a.peak || (a.key < b.key ? -1 : 1)).slice(0, most);
    return first.map(({ key }) => key).sort();
  }

  /** Sums of all other keys at the given times, each weighted by its factor; null if there are none. */
  rest(keys, times, factor) {
    const changes = times.map(() => 0);
    let isEmpty = true;
    for (const [key, steps] of this.series) {
      if (keys.includes(key)) continue;
      isEmpty = false;
      const one = factor ? factor(key) : 1;
      let before = 0;
      for (const [at, value] of steps) {
        const place = placeOf(times, at);
        if (place < times.length) changes[place] += (value - before) * one;
        before = value;
      }
    }
    if (isEmpty) return null;
    let sum = 0;
    return changes.map((change) => Math.max(0, (sum += change)));
  }
}

/** The index of the first time that is not before `at`. */
function placeOf(times, at) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}
