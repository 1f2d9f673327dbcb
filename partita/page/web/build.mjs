// Bundles the page's program and styles into ../built, with the licences of what is inside.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const here = new URL(".", import.meta.url).pathname;
const built = `${here}../built/`;
mkdirSync(built, { recursive: true });

const common = { bundle: true, minify: true, charset: "utf8", legalComments: "none", absWorkingDir: here, logLevel: "warning" };
const made = await build({
  ...common, entryPoints: ["src/main.ts"], outfile: `${built}app.js`, format: "iife", target: "es2022", metafile: true,
});
await build({ ...common, entryPoints: ["src/style.css"], outfile: `${built}app.css` });

const packages = new Set();
for (const input of Object.keys(made.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
  if (found) packages.add(found[1]);
}
// dagre's bundle holds graphlib, which it was built with.
if (packages.has("@dagrejs/dagre")) packages.add("@dagrejs/graphlib");
const licences = [...packages].sort().map((name) => {
  const folder = `${here}node_modules/${name}/`;
  const { version, license } = JSON.parse(readFileSync(`${folder}package.json`, "utf8"));
  return `${name} ${version} (${license})\n\n${readFileSync(`${folder}LICENSE`, "utf8").trim()}\n`;
});
writeFileSync(`${built}licences.txt`, `This page contains, beside Partita's own program (Apache-2.0):\n\n${licences.join("\n")}`);

// What the bundle was made of: a test compares it with the sources that lie here.
const sources = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"];
sources.push(...readdirSync(`${here}src`).sort().map((name) => `src/${name}`));
const digest = createHash("sha256");
for (const name of sources) digest.update(`${name}\n`).update(readFileSync(`${here}${name}`));
writeFileSync(`${built}sources.sha256`, `${digest.digest("hex")}\n`);
