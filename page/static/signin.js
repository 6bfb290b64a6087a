// The sign-in form: a field for a token, and how to get one.

import { h } from "./dom.js";

/** message: why the last token was rejected, "" at first. submit: token => void. */
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
    problem.textContent = value ? "A token contains only letters, digits and punctuation: the pasted text contains other characters." : "Paste a token first.";
    problem.hidden = false;
    input.focus();
  };
  return h(
    "section",
    { class: "panel sign-in", "aria-labelledby": "h-sign-in" },
    h("h1", { id: "h-sign-in" }, "Sign in"),
    h("p", { id: "token-help" }, "Paste a token for the cluster's API server. You see what its owner may read; the page changes nothing. The token stays in this tab until you close it."),
    h("form", { onsubmit, autocomplete: "off" }, h("label", { for: "token" }, "Token"), input, problem, h("button", { type: "submit" }, "Sign in")),
    h("p", { class: "soft" }, "To create a token for a service account:"),
    h("pre", {}, h("code", {}, "kubectl create token NAME --namespace NAMESPACE --duration 8h")),
  );
}
