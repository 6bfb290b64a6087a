// The field for a token, and how to get one.

import { h } from "./dom.js";

/** message: why the last token was not taken, "" at first. submit: token => void. */
export function signIn(message, submit) {
  const input = h("input", { type: "password", id: "token", name: "token", autocomplete: "off", spellcheck: "false", required: true, "aria-describedby": "token-help" });
  const problem = h("p", { class: "problem", role: "alert", hidden: !message }, message);
  const onsubmit = (event) => {
    event.preventDefault();
    const value = input.value.trim().replace(/^Bearer\s+/i, "");
    if (/^[\x21-\x7e]+$/.test(value)) {
      submit(value);
      return;
    }
    problem.textContent = value ? "A token has letters, digits and signs only: something else was pasted with it." : "Paste a token first.";
    problem.hidden = false;
    input.focus();
  };
  return h(
    "section",
    { class: "panel sign-in", "aria-labelledby": "h-sign-in" },
    h("h1", { id: "h-sign-in" }, "Sign in"),
    h("p", { id: "token-help" }, "Paste a token of the cluster's API server. You see what its owner may read, and change nothing. This tab alone keeps the token, until it is closed."),
    h("form", { onsubmit, autocomplete: "off" }, h("label", { for: "token" }, "Token"), input, problem, h("button", { type: "submit" }, "Sign in")),
    h("p", { class: "soft" }, "A token of a service account:"),
    h("pre", {}, h("code", {}, "kubectl create token NAME --namespace NAMESPACE --duration 8h")),
  );
}
