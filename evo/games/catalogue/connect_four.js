// The rules of Connect Four (connect_four.py), and its picture.

const ROWS = 6, COLUMNS = 7;

class Game {
  static seats = ["Blue, first", "Yellow, second"];
  static chips = ["#58a6ff", "#e3b341"];
  static size = () => [COLUMNS, ROWS];
  static keys = Object.fromEntries([1, 2, 3, 4, 5, 6, 7].map((key) => [key, key - 1]));
  static help = "1 to 7, or a click on a column";
  static labels = [1, 2, 3, 4, 5, 6, 7];

  constructor() {
    this.cells = new Int8Array(ROWS * COLUMNS).fill(-1); // the player whose stone lies there; the highest row first
    this.turn = 0;
    this.stones = 0;
    this.last = -1;
    this.four = [];
    this.returns = [0, 0];
    this.over = false;
  }

  /** Return the cell on which a stone would come to lie; below 0 where the column is full. */
  place(column) {
    let cell = (ROWS - 1) * COLUMNS + column;
    while (cell >= 0 && this.cells[cell] >= 0) cell -= COLUMNS;
    return cell;
  }

  step(column) {
    const player = this.turn, cell = this.place(column);
    if (cell >= 0) {
      this.cells[this.last = cell] = player;
      this.four = this.rowThrough(cell);
    }
    this.over = ++this.stones === ROWS * COLUMNS || cell < 0 || this.four.length > 0;
    if (cell < 0 || this.four.length > 0) {
      this.returns[player] = cell < 0 ? -1 : 1;
      this.returns[1 - player] = -this.returns[player];
    }
    this.turn = 1 - player;
  }

  /** Return the cells of four or more in a row through a cell, of its player; none where there are not so many. */
  rowThrough(cell) {
    const row = Math.floor(cell / COLUMNS), column = cell % COLUMNS;
    for (const [down, right] of [[0, 1], [1, 0], [1, 1], [1, -1]]) {
      const found = [cell];
      for (const sign of [-1, 1]) {
        for (let k = sign; ; k += sign) {
          const i = row + k * down, j = column + k * right;
          if (i < 0 || i >= ROWS || j < 0 || j >= COLUMNS || this.cells[i * COLUMNS + j] !== this.cells[cell]) break;
          found.push(i * COLUMNS + j);
        }
      }
      if (found.length >= 4) return found;
    }
    return [];
  }

  observe(player, out) {
    this.cells.forEach((owner, cell) => {
      if (owner >= 0) out[2 * cell + (owner === player ? 0 : 1)] = 1;
    });
  }

  allowed() {
    return Game.labels.map((_, column) => this.place(column) >= 0);
  }

  refuses(player, column) {
    return this.place(column) < 0;
  }

  actionAt(x) {
    return Math.floor(x);
  }

  draw(context, colours) {
    context.fillStyle = colours["field-2"];
    context.fillRect(0, 0, COLUMNS, ROWS);
    this.cells.forEach((owner, cell) => {
      const x = (cell % COLUMNS) + 0.5, y = Math.floor(cell / COLUMNS) + 0.5;
      disc(context, x, y, 0.42, owner < 0 ? colours.ground : Game.chips[owner]);
      if (this.four.includes(cell)) disc(context, x, y, 0.16, "#ffffff");
      else if (cell === this.last) disc(context, x, y, 0.1, "#ffffffb0");
    });
  }
}
