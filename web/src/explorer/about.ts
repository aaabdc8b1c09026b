/** The network, what could be computed for it, and what is not on the page. */
import { byId, fill, grouped, h } from "../shared/dom.ts";
import type { App } from "./app.ts";

function table(head: string[], rows: string[][]): HTMLElement {
  const line = (cells: string[]) => h("tr", {}, ...cells.map((cell, k) => (k ? h("td", {}, cell) : h("th", { scope: "row" }, cell))));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": head.join(", ") }, h("table", {}, h("thead", {}, h("tr", {}, ...head.map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, ...rows.map(line))));
}

export function writeAbout({ facts }: App, size: number): void {
  const megabytes = (octets: number) => `${(octets / 1e6).toFixed(2)} MB`;
  fill(
    byId("about"),
    h("p", {}, `${facts.network}, ${grouped(facts.parameters)} parameters, on ${facts.data}, examples of ${facts.shape.join(" × ")}. This page has ${megabytes(size)} of facts, and may have ${megabytes(facts.most)} in all.`),
    ...facts.remarks.map((remark) => h("p", { class: "small muted" }, remark)),
    facts.rows.length ? h("details", {}, h("summary", {}, `The ${facts.rows.length} operations`), table(["node", "operation", "kind", "shape"], facts.rows)) : null,
    Object.keys(facts.abilities).length ? h("details", {}, h("summary", {}, "What gatelab computes exactly for this network"), table(["part", "possible"], Object.entries(facts.abilities))) : null,
    h("h3", {}, "Left out"),
    facts.omissions.length ? h("ul", { class: "small", id: "omissions" }, ...facts.omissions.map(({ part, reason }) => h("li", {}, h("strong", {}, part), `: ${reason}`))) : h("p", { class: "small" }, "Nothing."),
  );
}
