// The token of this browser tab, in sessionStorage: other tabs cannot see it, and it is deleted with the tab.

const KEY = "edl-token";

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function keepToken(value) {
  sessionStorage.setItem(KEY, value);
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}
