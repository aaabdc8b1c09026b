/** Windows over the page: pasting a table, code for Python. */
import { parseTable } from "../engine/data.ts";
import { byId, fill, h } from "../shared/dom.ts";
import type { App } from "./app.ts";

function open(...children: HTMLElement[]): HTMLDialogElement {
  const dialog = byId<HTMLDialogElement>("dialog");
  fill(dialog, ...children);
  dialog.showModal();
  return dialog;
}

export function askForTable(app: App, use: (own: number[]) => void): void {
  const text = h("textarea", { id: "table", "aria-label": "Table", placeholder: "x, y, target\n0.5, 0.2, 1\n-0.3, 0.8, -1", spellcheck: "false" });
  const error = h("p", { class: "error", role: "alert" });
  const submit = () => {
    try {
      const { own, note } = parseTable(text.value);
      dialog.close();
      use(own);
      if (note) app.announce(note);
      app.tell(note && `Read ${own.length / 3} points: ${note}.`);
    } catch (problem) {
      error.textContent = (problem as Error).message;
    }
  };
  const dialog = open(
    h("h2", { id: "dialog-title" }, "Paste a table"),
    h("p", { class: "muted" }, "One point in a line: x, y, target. Two target values are two classes; more are real targets."),
    text,
    error,
    h("div", { class: "row" }, h("button", { onclick: () => dialog.close() }, "Cancel"), h("button", { class: "primary", id: "use-table", onclick: submit }, "Use these points")),
  );
}

export function showCode(title: string, note: string, code: string, save: () => void): void {
  const copy = h("button", { class: "primary", id: "copy-code", onclick: () => void copyText(code).then((done) => (copy.textContent = done ? "Copied" : "Select and copy by hand")) }, "Copy code");
  const dialog = open(
    h("h2", { id: "dialog-title" }, title),
    h("p", { class: "muted" }, note),
    h("pre", { tabindex: "0", "aria-label": "Python code" }, h("code", {}, code)),
    h("div", { class: "row" }, h("button", { onclick: () => dialog.close() }, "Close"), h("button", { id: "save-json", onclick: save }, "Save network.json"), copy),
  );
}

/** Copy text; false if the browser does not let us. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "hidden-visually" });
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.value = text;
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
