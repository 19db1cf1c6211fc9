// A champion that plays greedily, and what its test episodes are compared with. A page's `episodeOf(champion, number)`
// is a test episode: `over`, `step()`, `score`, `steps`, and the checksum and the number of the network's outputs.

const NOT_FINITE = -1;
const NO_OUTPUTS = 2166136261; // the checksum before the first one

/** Return a champion from the data of a page. Its weights are base64 of little-endian float32. */
function championOf(data) {
  const bytes = Uint8Array.from(atob(data.weights), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  const weights = new Float32Array(bytes.length / 4).map((_, k) => view.getFloat32(4 * k, true));
  return { ...data, network: new Network(data.layers, weights) };
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

/** Return what became of an episode that is over. */
function resultOf(number, { score, steps, checksum, outputCount }) {
  return { number, score, steps, checksum, outputs: outputCount };
}

/** Play a test episode from its beginning to its end. */
function playTestEpisode(champion, number) {
  const episode = episodeOf(champion, number);
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
