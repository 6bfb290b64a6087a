// The token of this browser tab: in sessionStorage, which no other tab sees and which ends with the tab.

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
