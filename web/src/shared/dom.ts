/** Building and finding elements. Text is always set as text, never as markup. */

type Attributes = Record<string, string | number | boolean | ((event: any) => void) | null | undefined>;

/** Create an element; functions become listeners, true an empty attribute, false and null nothing. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string | null)[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/** The element with this id; its absence is a mistake in the page. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element with id ${id}`);
  return found as T;
}

/** Set text only if it changed, so that screen readers are not disturbed. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Replace all children. */
export function fill(element: Element, ...children: (Node | string | null)[]): void {
  element.replaceChildren(...children.filter((child): child is Node | string => child !== null));
}

/** Offer bytes as a file. */
export function download(name: string, blob: Blob): void {
  const url = URL.createObjectURL(blob);
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A short number: 0.0123, −1.2, 1.2e-5. */
export function short(value: number, digits = 3): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "–" : value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(1) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}

export const signed = (value: number, digits = 3): string => (value < 0 ? "" : "+") + short(value, digits);

export const grouped = (value: number): string => value.toLocaleString("en-GB");
