// A champion, an episode that it plays greedily, and the check of test episodes against what the trainer recorded.

const NOT_FINITE = -1;

/** Return a champion from the data of a page. Its weights are base64 of little-endian float32. */
function championOf(data) {
  const bytes = Uint8Array.from(atob(data.weights), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const weights = new Float32Array(bytes.length / 4).map((_, k) => view.getFloat32(4 * k, true));
  const { rules, seen, mask, actions } = data;
  return { rules, seen, mask, actions, network: new Network(data.layers, weights) };
}

/** Return the allowed action of the highest score, the lowest of equals; NOT_FINITE where a score is not finite. */
function greedy(outputs, allowed) {
  let best = -1;
  for (let action = 0; action < allowed.length; action++) {
    if (!Number.isFinite(outputs[action])) return NOT_FINITE;
    if (allowed[action] && (best < 0 || outputs[action] > outputs[best])) best = action;
  }
  return best;
}

class Episode {
  constructor(champion, seed) {
    this.champion = champion;
    this.board = new Board(champion.rules, seed);
    const { side, planes } = champion.seen;
    this.observation = new Float32Array(side * side * planes);
    this.state = champion.network.begin();
    this.checksum = 2166136261;
    this.decide();
  }

  /** Ask the network what to do in this position. Outputs behind those of the actions are other heads, as a value. */
  decide() {
    const { champion, board, observation } = this;
    observe(board, champion.seen, observation);
    this.outputs = champion.network.outputs(observation, this.state).slice();
    this.action = greedy(this.outputs.subarray(0, champion.actions), board.mask(champion.mask));
    this.checksum = checksumOf(this.outputs, this.checksum);
  }

  get over() {
    return this.board.over !== ALIVE || this.action === NOT_FINITE;
  }

  step() {
    if (this.over) return;
    this.board.step(this.action);
    if (this.board.over === ALIVE) this.decide();
  }
}

/** Return a checksum of the bits of all outputs, -0 and 0 apart, that goes on from another (evo/report/champion.py). */
function checksumOf(outputs, start) {
  const words = new Uint32Array(outputs.buffer, outputs.byteOffset, outputs.length);
  let sum = start;
  for (const word of words) {
    sum = Math.imul(sum ^ word, 16777619);
    sum ^= sum >>> 15; // or the highest bits of two words could cancel
  }
  return sum >>> 0;
}

/** Return what became of an episode that is over: score, steps, checksum of every output, number of outputs. */
function resultOf(number, { board, checksum, outputs }) {
  return { number, score: board.score, steps: board.steps, checksum, outputs: board.steps * outputs.length };
}

/** Play a test episode from its beginning to its end. */
function playTestEpisode(champion, number) {
  const episode = new Episode(champion, testEpisodeSeed(number));
  while (!episode.over) episode.step();
  return resultOf(number, episode);
}

/** Answer every episode number with what became of it; the first message is the data of the page. */
function serve(scope) {
  let champion = null;
  scope.onmessage = ({ data }) => {
    if (champion === null) champion = championOf(data);
    else scope.postMessage(playTestEpisode(champion, data));
  };
}
