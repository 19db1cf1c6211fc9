// The rules of Snake (../rules.py) and what a network sees of a board (../observations.py).
// A cell is the number row * size + column. Directions: 0 up, 1 right, 2 down, 3 left.

const ALIVE = 0, TERMINATED = 1, TRUNCATED = 2;
const WALL = -1;

class Board {
  /** Begin the episode of `seed`: a straight body below a random head, which looks up. */
  constructor(rules, seed) {
    const { size, startLength } = rules;
    this.rules = rules;
    this.seed = seed;
    this.cells = size * size;
    this.occupied = new Uint8Array(this.cells);
    this.body = []; // head first
    const head = draw(seed, 0, (size - startLength + 1) * size);
    for (let k = 0; k < startLength; k++) this.body.push(head + k * size);
    for (const cell of this.body) this.occupied[cell] = 1;
    this.heading = 0;
    this.hunger = 0; // steps since the last fruit
    this.steps = 0;
    this.over = ALIVE;
    this.left = WALL; // the cell that the tail left in the last step, for a smooth picture
    this.placeFruit();
  }

  get score() {
    return this.body.length - this.rules.startLength;
  }

  get won() {
    return this.body.length === this.cells;
  }

  /** The fruit that is placed at length L uses draw L, whatever happened before. */
  placeFruit() {
    if (this.won) {
      this.fruit = WALL;
      return;
    }
    let rank = draw(this.seed, this.body.length, this.cells - this.body.length);
    let cell = 0;
    while (this.occupied[cell] || rank-- > 0) cell++;
    this.fruit = cell;
  }

  directionOf(action) {
    return this.rules.relative ? (this.heading + action + 3) & 3 : action;
  }

  /** Return the neighbour of the head, or WALL. */
  ahead(direction) {
    const { size } = this.rules;
    const row = Math.floor(this.body[0] / size) + (direction === 2) - (direction === 0);
    const column = (this.body[0] % size) + (direction === 1) - (direction === 3);
    return row >= 0 && row < size && column >= 0 && column < size ? row * size + column : WALL;
  }

  /** Return whether the head would die by entering a cell. */
  blocked(cell) {
    if (cell === WALL) return true;
    if (!this.occupied[cell]) return false;
    // The fruit never lies on the body, so whoever enters the tail's cell does not eat and the tail moves on.
    return this.rules.tailFatal || this.body.length === 1 || cell !== this.body[this.body.length - 1];
  }

  step(action) {
    this.move(this.directionOf(action));
  }

  /** Move the head one cell in a direction; nothing happens after the end of the episode. */
  move(direction) {
    if (this.over !== ALIVE) return;
    const { starvation, maxSteps } = this.rules;
    const target = this.ahead(direction);
    this.hunger++;
    this.steps++;
    if (this.blocked(target)) {
      this.over = TERMINATED;
      return;
    }
    const eats = target === this.fruit;
    this.left = eats ? WALL : this.body.pop();
    if (!eats) this.occupied[this.left] = 0;
    this.body.unshift(target);
    this.occupied[target] = 1;
    this.heading = direction;
    if (eats) {
      this.hunger = 0;
      if (this.won) this.over = TERMINATED;
      this.placeFruit();
    }
    const starved = starvation > 0 && this.hunger >= starvation;
    const outOfTime = maxSteps > 0 && this.steps >= maxSteps;
    if (this.over === ALIVE && (starved || outOfTime)) this.over = TRUNCATED;
  }

  /** Return whether each action is allowed by the mask "none", "reverse" or "fatal"; all are where none would be. */
  mask(kind) {
    const allowed = [];
    for (let action = 0; action < (this.rules.relative ? 3 : 4); action++) {
      const direction = this.directionOf(action);
      if (kind === "reverse") allowed.push(this.body.length === 1 || direction !== ((this.heading + 2) & 3));
      else allowed.push(kind === "none" || !this.blocked(this.ahead(direction)));
    }
    return allowed.includes(true) ? allowed : allowed.map(() => true);
  }
}

/** Return where a cell is seen once the board is turned so that the head looks up, as [row, column]. */
function turned(row, column, heading, size) {
  const last = size - 1;
  if (heading === 1) return [last - column, row];
  if (heading === 2) return [last - row, last - column];
  if (heading === 3) return [column, last - row];
  return [row, column];
}

/**
 * Write the observation of a board: float32 [side, side, planes], flat. `seen` is {kind, side, planes, oldest}, the age
 * that is seen as 1.
 */
function observe(board, seen, out) {
  const { kind, side, planes, oldest } = seen;
  const { size, starvation } = board.rules;
  const { body, cells } = board;
  const centred = kind === "window" || kind === "local", turns = kind === "ego" || centred;
  const hunger = starvation > 0 ? board.hunger / starvation : 0; // rounded to float32 where it is stored
  out.fill(0);
  let shiftDown = 0, shiftRight = 0;
  const see = (cell) => {
    const row = Math.floor(cell / size), column = cell % size;
    return turns ? turned(row, column, board.heading, size) : [row, column];
  };
  if (centred) {
    const [row, column] = see(body[0]);
    shiftDown = (side >> 1) - row;
    shiftRight = (side >> 1) - column;
  }
  /** Return where a cell's planes begin, or -1 outside of the window; `drawn` to the nearest cell of its edge instead. */
  const place = (cell, drawn = false) => {
    const [row, column] = see(cell);
    let i = row + shiftDown, j = column + shiftRight;
    if (drawn) [i, j] = [i, j].map((at) => Math.min(Math.max(at, 0), side - 1));
    return i >= 0 && i < side && j >= 0 && j < side ? (i * side + j) * planes : -1;
  };
  const set = (cell, plane, value) => {
    const at = place(cell);
    if (at >= 0) out[at + plane] = value;
  };
  if (kind === "frame") {
    for (const cell of body) set(cell, 0, 3);
    set(body[0], 0, 1);
    if (board.fruit !== WALL) set(board.fruit, 0, 2);
    return;
  }
  for (let at = 0; at < out.length; at += planes) {
    out[at + 4] = hunger;
    if (kind === "ego") out[at + 5] = 1;
    if (centred) out[at] = 1;
  }
  if (centred) for (let cell = 0; cell < cells; cell++) set(cell, 0, 0);
  for (let k = 0; k < body.length; k++) {
    if (k > 0) set(body[k], 1, 1);
    set(body[k], 2, Math.min((body.length - k) / oldest, 1));
  }
  if (!centred) set(body[0], 0, 1);
  if (board.fruit === WALL) return;
  const at = place(board.fruit, kind === "local");
  if (at >= 0) out[at + 3] = 1;
}
