// The forward pass in float32 with the bits of the trainer's kernel (evo/kernels/lanes.py).
//
// JavaScript computes in doubles. The sum, product, quotient or root of float32 numbers, computed as a double and then
// rounded by Math.fround, is the correctly rounded float32 result, because a double has more than twice its digits.
// So every single operation is rounded, in the kernel's order: bias, then kernel rows, columns, channels.

const EPSILON = Math.fround(1e-3); // added to the variance by layer normalisation
const PARTS = 8; // partial sums of a layer normalisation
const round = Math.fround;

class Network {
  /** Build from a table of layers and the flat weights: kernels, bias, and gamma and beta where a layer has a norm. */
  constructor(layers, weights) {
    let at = 0;
    const take = (count) => weights.slice(at, (at += count));
    this.memory = 0; // numbers of the hidden state
    this.layers = layers.map((layer) => {
      const { filters, gates } = layer;
      const inputs = layer.kernel * layer.kernel * layer.channels, sums = (gates || 1) * filters;
      const kernel = take(inputs * sums), recurrent = gates ? take(filters * sums) : null;
      const bias = take(sums), second = layer.kind === "gru" ? take(sums) : new Float32Array(sums);
      const gamma = layer.norm ? take(filters) : null, beta = layer.norm ? take(filters) : null;
      if (!gates) return { ...layer, ...products(layer, kernel, bias), gamma, beta };
      const place = this.memory, size = layer.kind === "gru" ? filters : 2 * filters;
      this.memory += size;
      const dense = { ...layer, filters: sums };
      return {
        ...layer, place, size, gamma, beta, out: new Float32Array(filters),
        inputs: { ...dense, ...products(dense, kernel, bias) },
        state: { ...dense, channels: filters, ...products({ ...dense, channels: filters }, recurrent, second) },
      };
    });
    if (at !== weights.length) throw new Error(`the network has ${at} weights, not ${weights.length}`);
  }

  /** Return the hidden state in which an episode begins. */
  begin() {
    return new Float32Array(this.memory);
  }

  /** Return all outputs for an observation, and overwrite the state. The array is written again by the next call. */
  outputs(observation, state = this.begin()) {
    let x = observation;
    for (const layer of this.layers) {
      if (layer.gates) remember(layer, x, state.subarray(layer.place, layer.place + layer.size));
      else computeLayer(layer, x);
      if (layer.norm) normalise(layer);
      activate(layer);
      x = layer.out;
    }
    return x;
  }
}

/** Return what the sums of a layer are computed with. */
function products(layer, weights, bias) {
  const inputs = layer.kernel * layer.kernel * layer.channels; // of a pixel, at most
  return {
    weights,
    // A bias of -0 becomes 0: a sum that begins at 0 is never -0, so leaving out products with 0 changes no bit.
    bias: bias.map((value) => value + 0),
    out: new Float32Array(layer.outHeight * layer.outWidth * layer.filters),
    values: new Float32Array(inputs),
    rows: new Int32Array(inputs),
  };
}

/** Write the output of a recurrent layer, and its next state over the last one (evo/kernels/recurrent.py). */
function remember(layer, x, state) {
  const units = layer.filters, from = layer.inputs.out, of = layer.state.out;
  computeLayer(layer.inputs, x);
  computeLayer(layer.state, state);
  const sum = (gate, k) => round(from[gate * units + k] + of[gate * units + k]);
  for (let k = 0; k < units; k++) {
    if (layer.kind === "gru") {
      const update = sigmoid(sum(0, k)), reset = sigmoid(sum(1, k));
      const candidate = tanh(round(from[2 * units + k] + round(reset * of[2 * units + k])));
      state[k] = round(round(update * state[k]) + round(round(1 - update) * candidate));
    } else {
      const kept = round(sigmoid(sum(1, k)) * state[units + k]);
      state[units + k] = round(kept + round(sigmoid(sum(0, k)) * tanh(sum(2, k))));
      state[k] = round(sigmoid(sum(3, k)) * tanh(state[units + k]));
    }
    layer.out[k] = state[k];
  }
}

function sigmoid(x) {
  return round(0.5 + round(0.5 * tanh(round(0.5 * x))));
}

/** The continued fraction of tanh, cut off, as two polynomials of x x (evo/kernels/weightless.py). */
const [ABOVE, BELOW] = (() => {
  let above = [1], below = [25];
  for (let odd = 23; odd > 0; odd -= 2) {
    const shifted = [0, ...above, ...Array(Math.max(below.length - above.length - 1, 0)).fill(0)];
    const longer = [...below, ...Array(shifted.length - below.length).fill(0)];
    [above, below] = [below, longer.map((value, k) => odd * value + shifted[k])];
  }
  return [above.map((value) => round(value / above[0])), below.map((value) => round(value / below[0]))];
})();

function tanh(x) {
  const z = round(x * x);
  const horner = (all) => all.reduceRight((sum, value) => round(value + round(z * sum)));
  const y = round(round(x * horner(ABOVE)) / horner(BELOW));
  if (x > 9 || y > 1) return 1;
  return x < -9 || y < -1 ? -1 : y;
}

/** Write the sums of a convolution; a dense layer is one of 1 x 1 with all inputs as channels. */
function computeLayer(layer, x) {
  let at = 0;
  for (let i = 0; i < layer.outHeight; i++) {
    for (let j = 0; j < layer.outWidth; j++) {
      addProducts(layer, gather(layer, x, i, j), at);
      at += layer.filters;
    }
  }
}

/** Collect what is not 0 among the inputs of a pixel, in the kernel's order; products with 0 change no sum. */
function gather(layer, x, i, j) {
  const { height, width, channels, filters, kernel, values, rows } = layer;
  let count = 0;
  for (let r = 0; r < kernel; r++) {
    const row = i * layer.stride - layer.pad + r;
    if (row < 0 || row >= height) continue;
    for (let c = 0; c < kernel; c++) {
      const column = j * layer.stride - layer.padLeft + c;
      if (column < 0 || column >= width) continue;
      const source = (row * width + column) * channels, first = (r * kernel + c) * channels;
      for (let channel = 0; channel < channels; channel++) {
        const value = x[source + channel];
        if (value === 0) continue;
        values[count] = value;
        rows[count++] = (first + channel) * filters; // where the weights of this input begin
      }
    }
  }
  return count;
}

/** Write the sums of all filters at out[at]. Four advance together: each waits for its own last addition only. */
function addProducts(layer, count, at) {
  const { filters, values, rows, weights, bias, out } = layer;
  let f = 0;
  for (; f + 4 <= filters; f += 4) {
    let sum0 = bias[f], sum1 = bias[f + 1], sum2 = bias[f + 2], sum3 = bias[f + 3];
    for (let k = 0; k < count; k++) {
      const value = values[k], row = rows[k] + f;
      sum0 = round(sum0 + round(weights[row] * value));
      sum1 = round(sum1 + round(weights[row + 1] * value));
      sum2 = round(sum2 + round(weights[row + 2] * value));
      sum3 = round(sum3 + round(weights[row + 3] * value));
    }
    out[at + f] = sum0;
    out[at + f + 1] = sum1;
    out[at + f + 2] = sum2;
    out[at + f + 3] = sum3;
  }
  for (; f < filters; f++) {
    let sum = bias[f];
    for (let k = 0; k < count; k++) sum = round(sum + round(weights[rows[k] + f] * values[k]));
    out[at + f] = sum;
  }
}

/** Apply ReLU, in which a NaN stays a NaN and -0 stays -0, which Math.max would turn into 0; or tanh. */
function activate({ activation, out }) {
  if (activation === "relu") for (let k = 0; k < out.length; k++) out[k] = out[k] < 0 ? 0 : out[k];
  if (activation === "tanh") for (let k = 0; k < out.length; k++) out[k] = tanh(out[k]);
}

/** Layer normalisation over the channels of each pixel (evo/kernels/layer_norm.py). */
function normalise(layer) {
  const { filters, gamma, beta, out } = layer;
  const parts = new Float32Array(PARTS);
  for (let start = 0; start < out.length; start += filters) {
    parts.fill(0);
    for (let f = 0; f < filters; f++) parts[f % PARTS] = round(parts[f % PARTS] + out[start + f]);
    const mean = round(sumOfParts(parts) / filters);
    parts.fill(0);
    for (let f = 0; f < filters; f++) {
      const distance = round(out[start + f] - mean);
      parts[f % PARTS] = round(parts[f % PARTS] + round(distance * distance));
    }
    const variance = round(round(sumOfParts(parts) / filters) + EPSILON);
    const inverse = round(1 / round(Math.sqrt(variance)));
    for (let f = 0; f < filters; f++) {
      const scaled = round(round(round(out[start + f] - mean) * inverse) * gamma[f]);
      out[start + f] = round(scaled + beta[f]);
    }
  }
}

/** Add eight partial sums as a tree. */
function sumOfParts(parts) {
  for (let half = PARTS / 2; half >= 1; half /= 2) {
    for (let k = 0; k < half; k++) parts[k] = round(parts[k] + parts[k + half]);
  }
  return parts[0];
}
