// Runs the scripts of a page in Node: node page_in_node.js SCRIPT... < job.json > answers.json

const fs = require("fs");
const vm = require("vm");

for (const file of process.argv.slice(2)) vm.runInThisContext(`"use strict";${fs.readFileSync(file, "utf8")}`, file);

const keyOf = (hex) => [parseInt(hex.slice(8), 16), parseInt(hex.slice(0, 8), 16)];
const base64 = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
const floats = (text) => new Float32Array(new Uint8Array(Buffer.from(text, "base64")).buffer);

/** Play an episode and keep every action and every output. */
function played(champion, seed) {
  const episode = new Episode(champion, seed);
  const actions = [], outputs = [];
  while (!episode.over) {
    actions.push(episode.action);
    outputs.push(...episode.outputs);
    episode.step();
  }
  const { score, steps, won } = episode.board;
  return { actions, outputs: base64(Float32Array.from(outputs)), score, steps, won, checksum: episode.checksum };
}

/** Play the moves of an episode again, and return what whoever is on turn sees before each, what is allowed, and the end. */
function replayed(options, inputs, seed, moves) {
  const match = new Match({ options, inputs, network: { begin: () => null } }, keyOf(seed));
  const seen = [], allowed = [];
  for (const action of moves) {
    match.observation.fill(0);
    match.game.observe(match.turn, match.observation);
    seen.push(...match.observation);
    allowed.push(match.game.allowed().map(Number));
    if (match.over) throw new Error("it is over before the last move");
    match.move(action);
  }
  return { seen: base64(Float32Array.from(seen)), allowed, over: match.over, returns: match.game.returns };
}

const answers = {
  matches: ({ options, inputs, items }) => items.map(([seed, moves]) => replayed(options, inputs, seed, moves)),
  philox: ({ items }) => items.map(([key, counter]) => philox(keyOf(key), counter)),
  draw: ({ items }) => items.map(([key, index, below]) => draw(keyOf(key), index, below)),
  seeds: ({ items }) => items.map((number) => testEpisodeSeed(number)),
  episodes: ({ champion, items }) => {
    const one = championOf(champion);
    return items.map((seed) => played(one, keyOf(seed)));
  },
  test: ({ champion, items }) => {
    const one = championOf(champion);
    return items.map((number) => playTestEpisode(one, number));
  },
  outputs: ({ champion, items }) => {
    const { network } = championOf(champion);
    return items.map((x) => base64(network.outputs(floats(x)).slice()));
  },
};

const jobs = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(jobs.map((job) => answers[job.kind](job))));
