// Values as text. Amounts are milli-cores of cpu, bytes of memory, and counts. Times are seconds since the epoch.

const GROUPED = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });
const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** 12345 -> 12,345 */
export function count(value) {
  return GROUPED.format(value);
}

/** A number with about three significant digits: 0.004, 1.25, 12.5, 1,234. */
export function number(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 100) return count(value);
  if (size < 0.001) return value === 0 ? "0" : value.toExponential(1);
  return String(Number(value.toPrecision(size >= 1 ? 3 : 2)));
}

/** An amount of a resource: cpu in cores, memory and storage in bytes, everything else as a count. */
export function amount(resource, value) {
  if (resource === "cpu") return number(value / 1000);
  return isBytes(resource) ? bytes(value) : number(value);
}

export function isBytes(resource) {
  return resource === "memory" || resource.includes("storage") || resource.startsWith("hugepages");
}

export function bytes(value) {
  let index = 0;
  let rest = value;
  while (Math.abs(rest) >= 1024 && index < BYTES.length - 1) {
    rest /= 1024;
    index += 1;
  }
  return `${number(Number(rest.toPrecision(3)))} ${BYTES[index]}`;
}

/** 0.123 -> 12.3 % */
export function percent(value, digits = 0) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return `${(value * 100).toFixed(digits)}\u202f%`;
}

/** A duration: 0.8 s, 12 s, 3 m, 2 h 5 m, 4 d. */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const value = Math.max(0, seconds);
  if (value < 10) return `${Number(value.toFixed(value < 1 ? 2 : 1))} s`;
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} m`;
  if (value < 172800) {
    const hours = Math.floor(value / 3600);
    const minutes = Math.round((value % 3600) / 60);
    return minutes && hours < 12 ? `${hours} h ${minutes} m` : `${Math.round(value / 3600)} h`;
  }
  return `${Math.round(value / 86400)} d`;
}

/** Returns how long ago a time was, in whole seconds. */
export function age(at, now) {
  return duration(Math.max(0, Math.round(now - at)));
}

/** Time of day in the reader's time zone, with the day unless it is today. */
export function clock(at, { seconds = true } = {}) {
  const date = new Date(at * 1000);
  const time = date.toLocaleTimeString("en-GB", {
    hour: "2-digit", minute: "2-digit", ...(seconds ? { second: "2-digit" } : {}),
  });
  if (new Date().toDateString() === date.toDateString()) return time;
  return `${date.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** Label of an axis whose ticks are `step` seconds apart; at midnight it is the day. */
export function tickTime(at, step) {
  const date = new Date(at * 1000);
  const isMidnight = date.getHours() === 0 && date.getMinutes() === 0 && date.getSeconds() === 0;
  if (isMidnight || step >= 86400) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) });
}

/** Date and time in full, for titles. */
export function moment(at) {
  return new Date(at * 1000).toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC");
}

/** "1 job", "2 jobs" */
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** Figures of a decision as short text; nested ones as JSON. */
export function figure(value) {
  if (value === null || typeof value !== "object") return typeof value === "number" ? number(value) : String(value);
  if (Array.isArray(value)) return value.map(figure).join(", ");
  return Object.entries(value).map(([name, part]) => `${name} ${figure(part)}`).join(", ");
}
