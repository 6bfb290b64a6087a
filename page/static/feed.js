// The event stream of a view, which is reopened when it ends or breaks.

import { ApiError, open, path } from "./api.js";
import { EventParser } from "./sse.js";

const SILENCE_MS = 30_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const STEADY_MS = 5_000;
const FATAL = [400, 401, 403, 404];

/**
 * onEvent: (section, data) => void. onState: ({state, message, error, until}) => void with state
 * "connecting", "live", "broken" (is retried) or "refused" (is not).
 */
export class Feed {
  constructor(parameters, { onEvent, onState }) {
    this.path = path("/api/v1/stream", parameters);
    this.onEvent = onEvent;
    this.onState = onState;
    this.lastId = "";
    this.failures = 0;
    this.isClosed = false;
    this.retryNow = () => this.wake?.();
    addEventListener("online", this.retryNow);
    this.run();
  }

  close() {
    this.isClosed = true;
    removeEventListener("online", this.retryNow);
    this.controller?.abort();
    this.wake?.();
  }

  async run() {
    while (!this.isClosed) {
      let error = null;
      const began = Date.now();
      try {
        await this.read();
      } catch (caught) {
        error = caught;
      }
      if (this.isClosed) return;
      if (error && FATAL.includes(error.status)) {
        this.onState({ state: "refused", message: error.message, error });
        return;
      }
      const isSteady = Date.now() - began > STEADY_MS;
      if (isSteady) this.failures = 0;
      if (error || !isSteady) await this.pause(error);
    }
  }

  /** Reads until the server ends the stream; throws if it breaks. */
  async read() {
    this.controller = new AbortController();
    const headers = this.lastId ? { "Last-Event-ID": this.lastId } : {};
    this.listenForSilence();
    try {
      const response = await open(this.path, { signal: this.controller.signal, headers });
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new EventParser((event) => this.take(event));
      this.onState({ state: "live" });
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        this.listenForSilence();
        parser.push(value);
      }
    } catch (error) {
      if (error instanceof ApiError || this.isClosed) throw error;
      throw new ApiError(0, this.wasSilent ? "The server has stopped responding." : "The connection to the server broke.");
    } finally {
      clearTimeout(this.silence);
    }
  }

  take(event) {
    if (event.id !== undefined) this.lastId = event.id;
    this.onEvent(event.event, JSON.parse(event.data));
  }

  listenForSilence() {
    clearTimeout(this.silence);
    this.wasSilent = false;
    this.silence = setTimeout(() => {
      this.wasSilent = true;
      this.controller.abort();
    }, SILENCE_MS);
  }

  /** Waits before the next attempt, longer each time, until the network is back or the user retries. */
  async pause(error) {
    const doubled = FIRST_PAUSE_MS * 2 ** Math.min(this.failures, 10);
    const wanted = Math.min(LONGEST_PAUSE_MS, doubled) * (0.75 + Math.random() / 2);
    const pause = Math.max(wanted, (error?.retryAfter ?? 0) * 1000);
    this.failures += 1;
    const message = error?.message ?? "The server closes each stream immediately.";
    this.onState({ state: "broken", message, error, until: Date.now() + pause });
    await new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, pause);
    });
  }
}
