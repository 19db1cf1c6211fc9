// The rules of the duel of two snakes (duel.py), and its picture. Directions: 0 up, 1 right, 2 down, 3 left.

class Game {
  static seats = ["Blue, left", "Yellow, right"];
  static chips = ["#58a6ff", "#e3b341"];
  static tails = ["#1f4f8a", "#7d5a14"];
  static size = ({ size }) => [size, size];
  static keys = { ArrowUp: 0, ArrowRight: 1, ArrowDown: 2, ArrowLeft: 3 };
  static help = "arrows, or swipe";
  static labels = ["\u25b2", "\u25b6", "\u25bc", "\u25c0"];

  constructor(options, below) {
    const { size } = options;
    this.options = options;
    this.below = below;
    this.freeAt = [0, 1].map(() => new Int32Array(size * size)); // the tick at which a cell of a snake becomes free
    this.heads = [0, 0];
    this.headings = [0, 2];
    this.lengths = [3, 3];
    this.tick = 0;
    this.dead = [false, false];
    this.returns = [0, 0];
    this.over = false;
    for (const player of [0, 1]) {
      for (let k = 0; k < 3; k++) {
        const row = (size >> 1) + (player ? k - 2 : 1 - k);
        this.heads[player] = row * size + (player ? size - 2 : 1);
        this.freeAt[player][this.heads[player]] = k + 1;
      }
    }
    this.placeFruit();
  }

  taken(cell, tick) {
    return this.freeAt[0][cell] > tick || this.freeAt[1][cell] > tick;
  }

  placeFruit() {
    const free = [...this.freeAt[0].keys()].filter((cell) => !this.taken(cell, this.tick));
    this.fruit = free.length > 0 ? free[this.below(free.length)] : -1;
  }

  neighbour(cell, action) {
    const { size } = this.options;
    const row = Math.floor(cell / size) + (action === 2) - (action === 0);
    const column = (cell % size) + (action === 1) - (action === 3);
    return row >= 0 && row < size && column >= 0 && column < size ? row * size + column : -1;
  }

  step(actions) {
    const { heads, freeAt, lengths, options, returns } = this;
    const tick = ++this.tick;
    let eaten = false;
    this.headings = actions;
    for (const player of [0, 1]) {
      heads[player] = this.neighbour(heads[player], actions[player]);
      if (heads[player] < 0 || heads[player] !== this.fruit) continue;
      eaten = true;
      lengths[player]++;
      returns[player] += options.fruit_reward;
      returns[1 - player] -= options.fruit_reward;
      freeAt[player].forEach((free, cell) => {
        if (free >= tick) freeAt[player][cell]++;
      });
    }
    this.dead = heads.map((head) => head < 0 || this.taken(head, tick) || heads[0] === heads[1]);
    for (const player of [0, 1]) {
      if (!this.dead[player]) freeAt[player][heads[player]] = tick + lengths[player];
    }
    const [first, second] = this.dead;
    this.over = first || second || tick === options.ticks;
    if (this.over) {
      const winner = first || second ? second - first : Math.sign(lengths[0] - lengths[1]);
      const both = first && second ? options.crash : 0;
      returns[0] += both + winner;
      returns[1] += both - winner;
    } else if (eaten) this.placeFruit();
  }

  observe(player, out) {
    const { size, centred } = this.options, n = size + centred, head = this.heads[player];
    const down = centred ? n + (size >> 1) - Math.floor(head / size) : 0;
    const right = centred ? n + (size >> 1) - (head % size) : 0;
    const set = (row, column, plane, value) => {
      out[(((row + down) % n) * n + ((column + right) % n)) * 5 + plane] = value;
    };
    const show = (cell, plane, value) => set(Math.floor(cell / size), cell % size, plane, value);
    for (let k = 0; centred && k < n; k++) {
      set(size, k, 0, 1);
      set(k, size, 0, 1);
    }
    for (const who of [player, 1 - player]) {
      const plane = who === player ? 0 : 2;
      this.freeAt[who].forEach((free, cell) => {
        if (free > this.tick) show(cell, plane + 1, (free - this.tick) / this.lengths[who]);
      });
      if (plane > 0 || !centred) show(this.heads[who], plane, 1);
    }
    if (this.fruit >= 0) show(this.fruit, 4, 1);
  }

  allowed() {
    return [true, true, true, true];
  }

  /** Refuse to turn back, which would be a collision that nobody wants. */
  refuses(player, action, last = this.headings[player]) {
    return action === ((last + 2) & 3);
  }

  draw(context, colours) {
    const { size } = this.options;
    const middle = (cell) => [(cell % size) + 0.5, Math.floor(cell / size) + 0.5];
    drawField(context, size, colours);
    if (this.fruit >= 0) drawFruit(context, ...middle(this.fruit), colours);
    this.freeAt.forEach((freeAt, player) => {
      const body = [...freeAt.keys()].filter((cell) => freeAt[cell] > this.tick);
      body.sort((one, other) => freeAt[other] - freeAt[one]); // the head was entered last
      context.globalAlpha = this.dead[player] ? 0.4 : 1;
      const own = { ...colours, head: Game.chips[player], tail: Game.tails[player] };
      if (body.length > 0) drawSnake(context, body.map(middle), this.headings[player], own);
    });
    context.globalAlpha = 1;
  }
}
