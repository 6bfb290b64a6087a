// The page's frame: sign-in, navigation, and the stream of the visible view.

import { get } from "./api.js";
import { h, setAttribute, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { clock } from "./format.js";
import { Model } from "./model.js";
import { forgetToken, keepToken, token } from "./session.js";
import { signIn } from "./signin.js";
import { decisionsView } from "./views/decisions.js";
import { jobView } from "./views/job.js";
import { jobsView } from "./views/jobs.js";
import { nodesView } from "./views/nodes.js";
import { overviewView } from "./views/overview.js";
import { reclaimsView } from "./views/reclaims.js";

const AGES_EVERY_MS = 5_000;
const ROUTES = [
  [/^\/?$/, overviewView, "overview"],
  [/^\/jobs$/, jobsView, "jobs"],
  [/^\/jobs\/([^/]+)\/([^/]+)$/, jobView, "jobs"],
  [/^\/reclaims(?:\/([^/]+))?$/, reclaimsView, "reclaims"],
  [/^\/decisions(?:\/([^/]+)\/([^/]+))?$/, decisionsView, "decisions"],
  [/^\/nodes(?:\/([^/]+))?$/, nodesView, "nodes"],
];
const NAVIGATION = [["overview", "#/", "Overview"], ["jobs", "#/jobs", "Jobs"], ["reclaims", "#/reclaims", "Reclaims"], ["decisions", "#/decisions", "Decisions"], ["nodes", "#/nodes", "Nodes"]];

class Page {
  constructor() {
    this.model = new Model();
    this.namespace = "";
    this.links = new Map(NAVIGATION.map(([name, href, title]) => [name, h("a", { href }, title)]));
    this.status = h("span", { class: "status" });
    this.retry = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.feed?.retryNow() }, "Try now");
    this.scope = h("select", { "aria-label": "Namespace", hidden: true, onchange: () => this.narrow(this.scope.value) });
    this.leave = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.signOut("") }, "Sign out");
    this.nav = h("nav", { "aria-label": "Views", hidden: true }, h("ul", {}, [...this.links.values()].map((link) => h("li", {}, link))));
    this.banner = h("p", { class: "banner", role: "alert", hidden: true });
    this.main = h("main", { id: "content", tabindex: -1 });
    document.querySelector("#page").replaceChildren(
      h("a", { class: "skip", href: "#content", onclick: (event) => { event.preventDefault(); this.main.focus(); } }, "Skip to content"),
      h("header", { class: "top" }, h("a", { class: "brand", href: "#/", "aria-label": "EDL, overview" }, h("span", { class: "mark", "aria-hidden": "true" }, h("i"), h("i"), h("i")), "EDL"), this.nav, h("div", { class: "tools" }, this.scope, this.status, this.retry, this.leave)),
      this.banner,
      this.main,
    );
    addEventListener("hashchange", () => this.route());
    setInterval(() => this.view?.tick?.(), AGES_EVERY_MS);
    setInterval(() => this.countDown(), 1000);
    this.start();
  }

  async start() {
    if (!token()) {
      this.showSignIn("");
      return;
    }
    try {
      this.me = await get("/api/v1/me");
      this.model.setTime(this.me.at);
    } catch (error) {
      if (error.status === 401) this.signOut(error.message);
      else this.showFailure(error);
      return;
    }
    this.showFrame(true);
    const names = this.me.namespaces;
    const all = this.me.everything ? "All namespaces" : "Your namespaces";
    this.scope.replaceChildren(h("option", { value: "" }, all), ...names.map((name) => h("option", { value: name }, name)));
    this.scope.hidden = names.length < 2;
    this.namespace = "";
    this.route();
  }

  showFrame(isSignedIn) {
    for (const element of [this.nav, this.leave]) element.hidden = !isSignedIn;
    if (!isSignedIn) {
      this.scope.hidden = true;
      this.retry.hidden = true;
      setText(this.status, "");
      setAttribute(this.status, "data-state", null);
    }
  }

  showSignIn(message) {
    this.showFrame(false);
    document.title = "Sign in · EDL";
    const submit = (value) => {
      keepToken(value);
      this.start();
    };
    this.main.replaceChildren(signIn(message, submit));
    this.main.querySelector("input").focus();
  }

  /** Shows that the first request failed for a reason other than the token, and tries again. */
  showFailure(error) {
    this.showFrame(false);
    this.leave.hidden = false;
    document.title = "EDL";
    const pause = Math.max(3, error.retryAfter);
    this.main.replaceChildren(
      h("section", { class: "panel sign-in", role: "alert" }, h("h1", {}, error.status === 403 ? "No permission to see this cluster" : "Not available"), h("p", {}, error.message),
        h("p", { class: "soft" }, `The page tries again every ${Math.round(pause)} seconds.`)),
    );
    clearTimeout(this.restart);
    this.restart = setTimeout(() => token() && this.start(), pause * 1000);
  }

  signOut(message) {
    clearTimeout(this.restart);
    this.stop();
    forgetToken();
    this.model = new Model();
    this.showSignIn(message);
  }

  stop() {
    this.feed?.close();
    this.view?.destroy?.();
    this.feed = this.view = null;
    this.banner.hidden = true;
  }

  narrow(namespace) {
    this.namespace = namespace;
    this.model = new Model(this.model.offset);
    this.route();
  }

  go(hash) {
    location.hash = hash;
  }

  route() {
    if (!this.me || !token()) return;
    const route = decodeHash(location.hash);
    this.stop();
    const hadFocus = this.main.contains(document.activeElement) || this.nav.contains(document.activeElement);
    this.view = route.make(this, ...route.parameters);
    for (const [name, link] of this.links) setAttribute(link, "aria-current", name === route.name ? "page" : null);
    document.title = `${this.view.title} · EDL`;
    this.main.replaceChildren(this.view.element);
    this.view.update();
    if (hadFocus && !this.nav.contains(document.activeElement)) this.main.focus({ preventScroll: true });
    scrollTo(0, 0);
    this.follow();
  }

  /** Opens the stream of the visible view; called again when its parameters change. */
  follow() {
    this.feed?.close();
    this.feed = null;
    const { sections, parameters } = this.view;
    if (!sections.length) {
      this.showState({ state: "idle" });
      return;
    }
    this.showState({ state: "connecting" });
    this.feed = new Feed(
      { sections: sections.join(","), namespace: this.namespace, ...parameters },
      { onEvent: (name, data) => this.take(name, data), onState: (state) => this.showState(state) },
    );
  }

  take(name, data) {
    this.model.apply(name, data);
    this.changed ??= new Set();
    if (!this.changed.size) requestAnimationFrame(() => this.refresh());
    this.changed.add(name);
    this.heardAt = this.model.now;
  }

  refresh() {
    const { changed } = this;
    this.changed = new Set();
    this.view?.update(changed);
  }

  showState(state) {
    this.state = state;
    if (state.state === "refused") {
      if (state.error.status === 401) {
        this.signOut(state.message);
        return;
      }
      this.view?.refused?.(state.error);
    }
    const words = { live: "Live", connecting: "Connecting …", broken: "Not live", refused: "Not live", idle: "" };
    setText(this.status, words[state.state]);
    setAttribute(this.status, "data-state", state.state);
    this.retry.hidden = state.state !== "broken";
    this.banner.hidden = !["broken", "refused"].includes(state.state);
    this.countDown();
  }

  countDown() {
    const { state, message, until } = this.state ?? {};
    if (state === "refused") setText(this.banner, message);
    if (state !== "broken") return;
    const seconds = Math.max(0, Math.ceil((until - Date.now()) / 1000));
    const since = this.heardAt ? ` What you see is of ${clock(this.heardAt)}.` : "";
    // only the banner is announced, so a screen reader reads it once and without the seconds
    setText(this.banner, `${message} The page tries again by itself.${since}`);
    setText(this.status, seconds ? `Not live, next try in ${seconds} s` : "Trying again …");
  }
}

function decodeHash(hash) {
  const place = hash.replace(/^#/, "");
  for (const [pattern, make, name] of ROUTES) {
    const match = pattern.exec(place);
    if (match) return { make, name, parameters: match.slice(1).filter((part) => part !== undefined).map(decodePart) };
  }
  return { make: overviewView, name: "overview", parameters: [] };
}

function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

new Page();
