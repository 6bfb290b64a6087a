// Requests with the token, and what can go wrong with them, in words.

import { token } from "./session.js";

/** What the server, or the way to it, answered instead of data. status 0: the server was not reached. */
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** A response with status 200. Throws ApiError. */
export async function open(path, { signal, headers } = {}) {
  let response;
  try {
    response = await fetch(path, { signal, cache: "no-store", headers: { ...headers, Authorization: `Bearer ${token()}` } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server of this page cannot be reached.");
  }
  if (response.ok) return response;
  throw new ApiError(response.status, await reason(response), Number(response.headers.get("Retry-After")) || 0);
}

/** The JSON at a path. Throws ApiError. */
export async function get(path, options) {
  const response = await open(path, options);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server's answer broke off.");
  }
}

async function reason(response) {
  try {
    const message = (await response.json()).error.message;
    if (message) return String(message);
  } catch {
    // not of this server: a proxy has answered
  }
  return `The server answered ${response.status} ${response.statusText}`.trim();
}

/** A path with parameters; empty ones are left out. */
export function path(base, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  return query.size ? `${base}?${query}` : base;
}

/** namespace/name as part of a path. */
export function keyPath(key) {
  return key.split("/").map(encodeURIComponent).join("/");
}
