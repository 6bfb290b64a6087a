// Requests with the token, and messages for their errors.

import { token } from "./session.js";

/** An error response, or status 0 if the server could not be reached. */
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Returns a response with status 200. Throws ApiError. */
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

/** Returns the JSON at a path. Throws ApiError. */
export async function get(path, options) {
  const response = await open(path, options);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server's response was incomplete.");
  }
}

async function reason(response) {
  try {
    const message = (await response.json()).error.message;
    if (message) return String(message);
  } catch {
    // not from this server, but from a proxy
  }
  return `The server responded with ${response.status} ${response.statusText}`.trim();
}

/** Returns a path with parameters, without empty ones. */
export function path(base, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
  return query.size ? `${base}?${query}` : base;
}

/** Returns namespace/name as part of a path. */
export function keyPath(key) {
  return key.split("/").map(encodeURIComponent).join("/");
}
