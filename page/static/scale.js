// Axes: round steps for numbers, bytes and times.

const TIME_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** Ticks from 0 to at least `top`: 1, 2 or 5 times a power of ten; of bytes, a power of two. */
export function ticks(top, { wanted = 4, binary = false } = {}) {
  if (!(top > 0)) return [0, 1];
  const base = binary ? 1024 ** Math.floor(Math.log(top) / Math.log(1024)) : 1;
  const rough = top / base / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= rough * 0.999);
  const step = factor * power * base;
  const result = [];
  for (let index = 0; (index - 1) * step < top * 0.999; index += 1) result.push(Number((index * step).toPrecision(12)));
  return result;
}

/** Times on round local minutes, hours or days between two times; at most `most`. */
export function timeTicks(from, to, most = 7) {
  const step = TIME_STEPS.find((candidate) => (to - from) / candidate <= most) ?? 604800;
  const zone = -new Date(from * 1000).getTimezoneOffset() * 60;
  const result = [];
  for (let at = Math.ceil((from + zone) / step) * step - zone; at <= to; at += step) result.push(at);
  return { step, at: result };
}

/** Indexes of a series thinned to about one per pixel; the last is always included. */
export function thinned(length, most) {
  const stride = Math.max(1, Math.ceil(length / Math.max(1, most)));
  const result = [];
  for (let index = (length - 1) % stride; index < length; index += stride) result.push(index);
  return result;
}
