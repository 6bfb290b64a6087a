// Creates elements without innerHTML, so that texts from the cluster only become text nodes and attributes.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an HTML element: h("button", {type: "button", onclick: f}, "text", child, ...). */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** Creates an SVG element; see `h`. */
export function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Sets an element's text, unless it is the same, which avoids a new layout. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Sets one property of an element's style. */
export function setStyle(element, name, value) {
  if (element.style[name] !== value) element.style[name] = value;
}

/** Sets an attribute; null or undefined removes it. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

/**
 * Updates a parent's children from a list; elements with known keys are kept, and with them focus and selection.
 * @param create item -> element
 * @param update (element, item) => void
 */
export function keyed(parent, items, keyOf, create, update) {
  const known = parent.keyedChildren ?? new Map();
  const next = new Map();
  let previous = null;
  for (const item of items) {
    const key = keyOf(item);
    const element = known.get(key) ?? create(item);
    update?.(element, item);
    next.set(key, element);
    const place = previous ? previous.nextSibling : parent.firstChild;
    if (place !== element) parent.insertBefore(element, place);
    previous = element;
  }
  for (const [key, element] of known) if (!next.has(key)) element.remove();
  parent.keyedChildren = next;
}

/** Text for screen readers only. */
export function hidden(text) {
  return h("span", { class: "visually-hidden" }, text);
}
