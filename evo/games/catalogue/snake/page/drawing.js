// Pictures: a board with its snake, and what the network sees.

/** Return the middles of the body's cells, head first, `share` of the way from the last step to this one. */
function spine(board, share) {
  const { size } = board.rules;
  const middle = (cell) => [(cell % size) + 0.5, Math.floor(cell / size) + 0.5];
  const points = board.body.map(middle);
  if (board.steps === 0 || board.over === TERMINATED || share >= 1) return points;
  const onTheWay = (from, to) => [from[0] + share * (to[0] - from[0]), from[1] + share * (to[1] - from[1])];
  const last = points.length - 1;
  const neck = last > 0 ? points[1] : board.left === WALL ? points[0] : middle(board.left);
  const head = onTheWay(neck, points[0]);
  if (last > 0 && board.left !== WALL) points.push(onTheWay(middle(board.left), points[last]));
  points[0] = head;
  return points;
}

/** Draw a board; `share` of the last step is done, 1 once it is. */
function drawBoard(canvas, board, share, colours) {
  const { size } = board.rules;
  const context = prepared(canvas, size);
  drawField(context, size, colours);
  if (board.fruit !== WALL) drawFruit(context, (board.fruit % size) + 0.5, Math.floor(board.fruit / size) + 0.5, colours);
  drawSnake(context, spine(board, share), board.heading, colours);
}

/** Draw an observation as the network gets it: turned and shifted with the head where it sees the board so. */
function drawObservation(canvas, observation, seen, colours) {
  const { kind, side, planes } = seen;
  const context = prepared(canvas, side);
  context.fillStyle = colours.field;
  context.fillRect(0, 0, side, side);
  const centred = kind === "window" || kind === "local", middle = (side >> 1) * (side + 1);
  for (let cell = 0; cell < side * side; cell++) {
    const plane = (number) => observation[cell * planes + number];
    const values = kind === "frame" ? [+(plane(0) === 1), +(plane(0) === 3), +(plane(0) === 3), +(plane(0) === 2)]
      : [plane(0), plane(1), plane(2), plane(3)];
    let colour = null;
    if (kind === "local" && values[3]) colour = colours.fruit; // it may be shown where the body is
    else if (centred && values[0]) colour = colours.wall;
    else if (centred ? cell === middle : values[0]) colour = colours.head;
    else if (values[1]) colour = between(colours.tail, colours.head, Math.sqrt(values[2]));
    else if (values[3]) colour = colours.fruit;
    if (colour === null) continue;
    context.fillStyle = colour;
    context.fillRect(cell % side, Math.floor(cell / side), 1.02, 1.02);
  }
}
