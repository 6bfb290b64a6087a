// Server-sent events from a stream of text (WHATWG HTML, 9.2.6): EventSource cannot send a token, so the page reads them itself.

/** Parses text as it arrives; calls `emit({event, data, id})` for each event. */
export class EventParser {
  constructor(emit) {
    this.emit = emit;
    this.rest = "";
    this.clear();
  }

  clear() {
    this.event = "";
    this.data = [];
    this.id = undefined;
  }

  push(text) {
    this.rest += text;
    const lines = this.rest.split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    lines.forEach((line) => this.line(line));
  }

  line(line) {
    if (line === "") {
      if (this.data.length) this.emit({ event: this.event || "message", data: this.data.join("\n"), id: this.id });
      this.clear();
      return;
    }
    if (line.startsWith(":")) return;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.event = value;
    else if (name === "data") this.data.push(value);
    else if (name === "id") this.id = value;
  }
}
