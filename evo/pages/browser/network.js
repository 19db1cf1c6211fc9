// The forward pass in float32 with the bits of the trainer's kernel (evo/kernels/lanes.py).
//
// JavaScript computes in doubles. The sum, product, quotient or root of float32 numbers, computed as a double and then
// rounded by Math.fround, is the correctly rounded float32 result, because a double has more than twice its digits.
// So every single operation is rounded, in the kernel's order: bias, then kernel rows, columns, channels.

const EPSILON = Math.fround(1e-3); // added to the variance by layer normalisation
const PARTS = 8; // partial sums of a layer normalisation
const round = Math.fround;

class Network {
  /** Build from a table of layers and the flat weights: kernel, bias, and gamma and beta where a layer has a norm. */
  constructor(layers, weights) {
    let at = 0;
    const take = (count) => weights.slice(at, (at += count));
    this.layers = layers.map((layer) => {
      const { filters } = layer;
      const kernel = take(layer.kernel * layer.kernel * layer.channels * filters);
      // A bias of -0 becomes 0: a sum that begins at 0 is never -0, so leaving out products with 0 changes no bit.
      const bias = take(filters).map((value) => value + 0);
      const gamma = layer.norm ? take(filters) : null;
      const beta = layer.norm ? take(filters) : null;
      const out = new Float32Array(layer.outHeight * layer.outWidth * filters);
      return { ...layer, weights: kernel, bias, gamma, beta, out };
    });
    if (at !== weights.length) throw new Error(`the network has ${at} weights, not ${weights.length}`);
  }

  /** Return all outputs for an observation. The array is written again by the next call. */
  outputs(observation) {
    let x = observation;
    for (const layer of this.layers) {
      computeLayer(layer, x);
      if (layer.norm) normalise(layer);
      else if (layer.relu) rectify(layer.out);
      x = layer.out;
    }
    return x;
  }
}

/** Write the sums of a convolution; a dense layer is one of 1 x 1 with all inputs as channels. */
function computeLayer(layer, x) {
  const { height, width, channels, filters, kernel, stride, pad, padLeft, weights, bias, out } = layer;
  let at = 0;
  for (let i = 0; i < layer.outHeight; i++) {
    for (let j = 0; j < layer.outWidth; j++) {
      out.set(bias, at);
      for (let r = 0; r < kernel; r++) {
        const row = i * stride - pad + r;
        if (row < 0 || row >= height) continue;
        for (let c = 0; c < kernel; c++) {
          const column = j * stride - padLeft + c;
          if (column < 0 || column >= width) continue;
          const source = (row * width + column) * channels;
          addProducts(out, at, filters, x, source, channels, weights, (r * kernel + c) * channels * filters);
        }
      }
      at += filters;
    }
  }
}

/** Add the products of one pixel's channels to the sums of all filters, which start at out[at]. */
function addProducts(out, at, filters, x, source, channels, weights, first) {
  for (let channel = 0; channel < channels; channel++) {
    const value = x[source + channel];
    if (value === 0) continue; // most inputs are 0, and a product with 0 changes no sum
    const row = first + channel * filters;
    for (let f = 0; f < filters; f++) out[at + f] = round(out[at + f] + round(weights[row + f] * value));
  }
}

/** ReLU. Math.max would do something else with NaN and -0. */
function rectify(out) {
  for (let k = 0; k < out.length; k++) out[k] = out[k] < 0 ? 0 : out[k];
}

/** Layer normalisation over the channels of each pixel, then ReLU (evo/kernels/layer_norm.py). */
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
      const value = round(scaled + beta[f]);
      out[start + f] = value < 0 ? 0 : value;
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
