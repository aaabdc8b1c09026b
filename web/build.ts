/**
 * Builds the pages into src/gatelab/web: one HTML file each, with script, style and, where it needs one, a worker inside.
 *
 * The page carries the digest of its sources; a test compares it without building, and a slow one builds anew.
 * `node build.ts --digest` prints the digest alone and needs no npm packages.
 */
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";

const HERE = import.meta.dirname;
const OUT = process.env.GATELAB_WEB_OUT ?? join(HERE, "..", "src", "gatelab", "web");

const sha256 = (text: string | Buffer, form: "hex" | "base64"): string => createHash("sha256").update(text).digest(form);

function sources(): string[] {
  const walk = (folder: string): string[] =>
    readdirSync(folder).flatMap((name) => {
      const path = join(folder, name);
      return statSync(path).isDirectory() ? walk(path) : [path];
    });
  const own = ["build.ts", "package.json", "package-lock.json"].map((name) => join(HERE, name));
  return [...own, ...walk(join(HERE, "src"))].sort();
}

/** One digest of the names and contents of all sources. */
export function digest(): string {
  const lines = sources().map((path) => `${relative(HERE, path).replaceAll("\\", "/")} ${sha256(readFileSync(path), "hex")}`);
  return sha256(lines.join("\n"), "hex");
}

/** A page with a worker carries its source as `WORKER_SOURCE`; a page with facts has a place where Python puts them. */
async function build(name: string, title: string, has: { worker?: boolean; facts?: boolean }): Promise<void> {
  const { build: bundle } = await import("esbuild");
  const options = { bundle: true, write: false, minify: true, format: "iife", target: "es2022", legalComments: "none", charset: "utf8" } as const;
  const folder = join(HERE, "src", name);
  const text = async (entry: string, define = {}) => (await bundle({ ...options, entryPoints: [entry], define })).outputFiles[0].text.trim();
  const worker = has.worker ? { WORKER_SOURCE: JSON.stringify(await text(join(HERE, "src", "worker", "worker.ts"))) } : {};
  const script = await text(join(folder, "main.ts"), worker);
  const css = `${readFileSync(join(HERE, "src", "shared", "tokens.css"), "utf8")}${readFileSync(join(folder, `${name}.css`), "utf8")}`;
  const style = (await (await import("esbuild")).transform(css, { loader: "css", minify: true })).code.trim();
  if (script.includes("</script") || style.includes("</style")) throw new Error("an end tag inside script or style");
  const policy = [
    "default-src 'none'",
    `script-src 'sha256-${sha256(script, "base64")}'`,
    `style-src 'sha256-${sha256(style, "base64")}'`,
    ...(has.worker ? ["worker-src blob:"] : []),
    "img-src data:",
    "base-uri 'none'",
    "form-action 'none'",
  ].join("; ");
  const icon = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M0 0h12L4 16H0z' fill='%230b62b8'/%3E%3Cpath d='M12 0h4v16H4z' fill='%23d9730d'/%3E%3C/svg%3E";
  const page = `<!doctype html>
<html lang="en" data-sources="${digest()}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>${title}</title>
<link rel="icon" href="${icon}">
<style>${style}</style>
</head>
<body>
${readFileSync(join(folder, "page.html"), "utf8").trim()}
${has.facts ? '<script type="application/json" id="facts">null</script>\n' : ""}<script>${script}</script>
</body>
</html>
`;
  mkdirSync(OUT, { recursive: true });
  writeFileSync(join(OUT, `${name}.html`), page);
  console.log(`${name}.html: ${(page.length / 1024).toFixed(0)} KB`);
}

if (process.argv.includes("--digest")) console.log(digest());
else {
  await build("playground", "gatelab playground", { worker: true });
  await build("explorer", "gatelab explorer", { facts: true });
}
