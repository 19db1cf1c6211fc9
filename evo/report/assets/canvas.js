// Drawing in units of cells: a field, fruits and snakes. Colours are those of the style sheet.

const RADIUS = 0.42; // of the body at the head, in cells; it is thinner at the tail
const THINNER = 0.16;
const DISCS = 10; // a cell
const COLOURS = ["ground", "field", "field-2", "wall", "head", "tail", "fruit", "leaf", "eye", "pupil"];

/** Return the colours of the style sheet, which depend on whether the reader likes it dark. */
function palette() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(COLOURS.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

/** Return a colour between two of the form #rrggbb. */
function between(one, other, share) {
  const part = (colour, at) => parseInt(colour.slice(at, at + 2), 16);
  const mix = (at) => Math.round(part(one, at) + share * (part(other, at) - part(one, at)));
  return `rgb(${mix(1)},${mix(3)},${mix(5)})`;
}

/** Return a canvas ready to be drawn on in units of cells, as sharp as the screen. */
function prepared(canvas, columns, rows = columns) {
  const pixels = Math.round(canvas.clientWidth * (window.devicePixelRatio || 1));
  if (canvas.width !== pixels) [canvas.width, canvas.height] = [pixels, Math.round((pixels * rows) / columns)];
  const context = canvas.getContext("2d");
  context.setTransform(pixels / columns, 0, 0, pixels / columns, 0, 0);
  return context;
}

/** Draw an empty board. */
function drawField(context, size, colours) {
  for (let cell = 0; cell < size * size; cell++) {
    const row = Math.floor(cell / size), column = cell % size;
    context.fillStyle = (row + column) % 2 ? colours["field-2"] : colours.field;
    context.fillRect(column, row, 1.02, 1.02);
  }
}

function drawFruit(context, x, y, colours) {
  disc(context, x, y + 0.04, 0.33, colours.fruit);
  context.fillStyle = colours.leaf;
  context.beginPath();
  context.ellipse(x + 0.1, y - 0.32, 0.15, 0.07, -0.6, 0, 2 * Math.PI);
  context.fill();
  disc(context, x - 0.12, y - 0.08, 0.07, "#ffffffb0");
}

function drawSnake(context, points, heading, colours) {
  const last = Math.max(points.length - 1, 1);
  const discs = last * DISCS; // close enough together to look like one body that gets thinner and paler
  for (let k = discs; k >= 0; k--) {
    const behind = Math.min(Math.floor(k / DISCS), points.length - 1), next = Math.min(behind + 1, points.length - 1);
    const share = k / DISCS - behind;
    const [x, y] = points[behind], [endX, endY] = points[next];
    const radius = RADIUS - (THINNER * k) / discs;
    disc(context, x + share * (endX - x), y + share * (endY - y), radius, between(colours.head, colours.tail, k / discs));
  }
  const forward = [[0, -1], [1, 0], [0, 1], [-1, 0]][heading];
  const [x, y] = points[0];
  for (const side of [-1, 1]) {
    const eyeX = x + 0.1 * forward[0] - 0.19 * side * forward[1];
    const eyeY = y + 0.1 * forward[1] + 0.19 * side * forward[0];
    disc(context, eyeX, eyeY, 0.12, colours.eye);
    disc(context, eyeX + 0.05 * forward[0], eyeY + 0.05 * forward[1], 0.065, colours.pupil);
  }
}

function disc(context, x, y, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
