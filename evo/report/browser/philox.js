// Philox4x32-10 in 32-bit arithmetic: the random numbers of the trainer (Salmon et al., SC'11; evo/randomness/philox.py).
// A key has 64 bits, which no number of JavaScript holds: it is a pair [low, high] of 32-bit words.

const TEST_EPISODES = 8; // the purpose that names the streams of test episodes
const ROUNDS = 10;

/** Return the high 32 bits of a * b. A double holds 53 bits, so the product is put together from 16-bit limbs. */
function highProduct(a, b) {
  const aLow = a & 0xffff, aHigh = a >>> 16, bLow = b & 0xffff, bHigh = b >>> 16;
  const low = aLow * bLow, cross = aHigh * bLow;
  const middle = aLow * bHigh + (cross & 0xffff) + (low >>> 16);
  return (aHigh * bHigh + (cross >>> 16) + Math.floor(middle / 65536)) >>> 0;
}

/** Return the four 32-bit words at a counter of the stream `key`. */
function philox(key, counter) {
  let [k0, k1] = key;
  let [c0, c1, c2, c3] = counter;
  for (let round = 0; round < ROUNDS; round++) {
    const high0 = highProduct(0xd2511f53, c0), high1 = highProduct(0xcd9e8d57, c2);
    const low0 = Math.imul(0xd2511f53, c0), low1 = Math.imul(0xcd9e8d57, c2);
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1 >>> 0;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0 >>> 0;
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  return [c0, c1, c2, c3];
}

/** Return draw number `index` of the stream `key` for a purpose: an integer in [0, below), uniform by rejection. */
function draw(key, index, below, purpose = 0) {
  const limit = Math.floor(4294967296 / below) * below;
  for (let attempt = 0; ; attempt++) {
    for (const word of philox(key, [attempt, index, purpose, 0])) {
      if (word < limit) return word % below;
    }
  }
}

/** Return the seed of a test episode, which is the same for every run. */
function testEpisodeSeed(number) {
  const [low, high] = philox([0, 0], [TEST_EPISODES, 0, 0, number]);
  return [low, high];
}
