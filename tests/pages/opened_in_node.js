// Opens a page without a browser: node opened_in_node.js < PAGE.html prints the line that it shows where it is damaged.

const fs = require("fs");
const vm = require("vm");

const page = fs.readFileSync(0, "utf8");
const anything = new Proxy(function () {}, {
  get: (_, name) => name === Symbol.toPrimitive ? () => 1 : name === Symbol.iterator ? [][name].bind([]) : anything,
  set: () => true,
  apply: () => anything,
  construct: () => anything,
});
const [, line] = /<p id="damaged"[^>]*>(.*?)<\/p>/.exec(page) ?? [];
const own = { damaged: line === undefined ? null : { hidden: true, remove: () => (own.damaged = null) } };
if (own.damaged) own.damaged.removeAttribute = (name) => (own.damaged[name] = false);
const parsed = [];
Object.assign(globalThis, {
  addEventListener: (name, hear) => name === "DOMContentLoaded" && parsed.push(hear),
  document: {
    getElementById: (id) => id in own ? own[id] : anything,
    querySelectorAll: () => [],
    createElement: () => anything,
    addEventListener: () => {},
    body: anything,
    documentElement: anything,
  },
  matchMedia: () => ({ matches: true, addEventListener: () => {} }),
  getComputedStyle: () => anything,
  requestAnimationFrame: () => {},
  ResizeObserver: anything,
  Option: anything,
  window: globalThis,
  navigator: { language: "en" },
  devicePixelRatio: 1,
});
for (const [, about, text] of page.matchAll(/<script([^>]*)>([^]*?)<\/script>/g)) { // one that is cut off does not run
  if (about.includes("application/json")) own.data = { textContent: text };
  else try { vm.runInThisContext(text); } catch (error) { console.error(String(error)); }
}
parsed.forEach((hear) => hear());
if (own.damaged && !own.damaged.hidden) console.log(line);
