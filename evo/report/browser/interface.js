// The page of a game of several players: a match with the reader in one seat, or a test episode to watch.

const WATCHING = 3, PLAYING = 2; // places in SPEEDS to start with
const MOST_QUEUED = 2; // moves of the reader that wait for their step

let colours = palette();
const shown = {
  match: null,
  seat: 0, // of the reader; -1: none, a test episode is played
  queue: [], // moves of the reader that are not played yet
  held: -1, // the last one, which goes on where all move simultaneously
  playing: false,
  speed: PLAYING,
  share: 0, // of a step that has passed
  last: 0, // time of the last frame
};
const watching = () => shown.seat < 0;
const together = () => shown.match.game.turn === undefined;
const awaited = () => !watching() && !together() && shown.match.turn === shown.seat;

/** Begin the match of a test episode, with the reader in the chosen seat. */
function begin(number) {
  at("episode").value = number;
  shown.seat = Number(at("seat").value);
  shown.match = watching() ? new Episode(champion, data.first + number)
    : new Match(champion, testEpisodeSeed(data.first + number));
  shown.queue = [];
  shown.held = -1;
  shown.share = 0;
  shown.playing = watching() ? !still.matches : !together(); // where all move simultaneously, the reader's move begins it
  show();
}

/** Play one step, or a move where players move in turn; nothing where the reader is to move first. */
function tick() {
  const { match, seat, queue } = shown;
  do {
    if (watching()) match.step();
    else if (match.turn !== seat) match.move(match.decide());
    else if (queue.length > 0 || together()) match.move(queue.length > 0 ? (shown.held = queue.shift()) : shown.held);
  } while (match.waiting.length > 0);
}

function frame(now) {
  const passed = Math.min(now - shown.last, 250);
  shown.last = now;
  if (shown.playing && !shown.match.over && !awaited()) {
    shown.share += (passed / 1000) * SPEEDS[shown.speed];
    for (; shown.share >= 1 && !shown.match.over && !awaited(); shown.share--) tick();
    show();
  }
  requestAnimationFrame(frame);
}

/** Take a move of the reader. */
function take(action) {
  const { match, queue, seat } = shown;
  if (watching() || match.over || (!together() && !awaited())) return;
  const last = queue.length > 0 ? queue[queue.length - 1] : match.game.headings?.[seat];
  if (match.game.refuses(seat, action, last) || queue.length >= MOST_QUEUED) return;
  queue.push(action);
  shown.playing = true;
  shown.share = 0;
  if (!together()) tick();
  show();
}

function statusOf() {
  const { match, seat } = shown;
  const mine = watching() ? match.seat : seat, me = watching() ? "The champion" : "You";
  const they = watching() ? match.opponent : "the champion";
  if (match.over) {
    const outcome = match.outcome(mine);
    if (outcome === 0) return `A draw after ${match.steps} moves`;
    const winner = outcome > 0 ? `${me} ${watching() ? "wins" : "win"}` : `${they[0].toUpperCase()}${they.slice(1)} wins`;
    return `${winner} after ${match.steps} moves`;
  }
  if (watching()) return `Test episode ${at("episode").value}, against ${they}`;
  if (together()) return shown.playing ? `Move ${match.steps}` : `Begin: ${Game.help}`;
  return awaited() ? "Your move" : "The champion moves";
}

function show() {
  const { match, seat, playing, speed } = shown;
  const [columns, rows] = Game.size(champion.options), canvas = at("board");
  canvas.style.aspectRatio = columns / rows;
  match.game.draw(prepared(canvas, columns, rows), colours);
  at("status").textContent = statusOf();
  at("moves").hidden = watching();
  [...at("players").children].forEach((line, player) => {
    const who = player === seat ? "you" : watching() && player !== match.seat ? match.opponent : "the champion";
    line.querySelector("b").textContent = `${Game.seats[player]}: ${who}`;
    line.classList.toggle("turn", match.game.turn === player && !match.over);
  });
  at("play").textContent = match.over ? "Again" : playing ? "Pause" : "Play";
  at("slower").disabled = speed === 0;
  at("faster").disabled = speed === SPEEDS.length - 1;
  if (match.outputs !== null) showAnswers(match.outputs, match.decided);
}

function playOrPause() {
  if (shown.match.over) begin(Number(at("episode").value));
  else if (watching() || !together() || shown.held >= 0) shown.playing = !shown.playing;
  show();
}

function changeSpeed(by) {
  shown.speed = Math.min(Math.max(shown.speed + by, 0), SPEEDS.length - 1);
  show();
}

/** Return the number of a test episode nearest to another one; only those with recorded moves can be watched. */
function numbered(number) {
  const count = Number(at("seat").value) < 0 ? data.moves.length : 1_000_000;
  return Number.isInteger(number) && number >= 0 && number < count ? number : 0;
}

const next = () => begin(numbered(Number(at("episode").value) + 1));

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select")) return;
  const { key } = event;
  if (key === " " && event.target.closest("button")) return; // it presses that button
  if (key in Game.keys && !watching()) take(Game.keys[key]);
  else if (key === " ") playOrPause();
  else if (key === "+" || key === "=") changeSpeed(1);
  else if (key === "-") changeSpeed(-1);
  else if (key === "n" || key === "N") next();
  else return;
  event.preventDefault(); // the page does not scroll under the game
}

/** Return a button of a move. */
function moveButton(label, action) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = label;
  button.dataset.direction = action;
  button.setAttribute("aria-label", data.names[action]);
  button.addEventListener("pointerdown", () => take(action));
  button.addEventListener("click", (event) => event.detail === 0 && take(action)); // by a key
  return button;
}

function start() {
  const canvas = at("board");
  listAnswers(data.names);
  Game.seats.forEach((name, player) => {
    at("seat").append(new Option(name, player));
    const line = document.createElement("li"), chip = document.createElement("i");
    chip.style.background = Game.chips[player];
    line.append(chip, document.createElement("b"));
    at("players").append(line);
  });
  at("seat").append(new Option("nobody, and watch", -1));
  at("moves").className = Game.prototype.actionAt ? "columns" : "pad";
  at("moves").append(...Game.labels.map(moveButton));
  at("block").textContent = `of block ${data.block}`;
  at("help").textContent = `${Game.help}, `;
  at("play").addEventListener("click", playOrPause);
  at("slower").addEventListener("click", () => changeSpeed(-1));
  at("faster").addEventListener("click", () => changeSpeed(1));
  at("next").addEventListener("click", next);
  at("seat").addEventListener("change", () => {
    shown.speed = Number(at("seat").value) < 0 ? WATCHING : PLAYING;
    begin(numbered(Number(at("episode").value)));
    at("seat").blur(); // or the arrows would choose another seat
  });
  at("episode").addEventListener("change", () => begin(numbered(Number(at("episode").value))));
  document.addEventListener("keydown", pressed);
  if (Game.prototype.actionAt) {
    canvas.addEventListener("click", (event) => {
      const [columns] = Game.size(champion.options);
      take(shown.match.game.actionAt((event.offsetX / canvas.clientWidth) * columns));
    });
  } else listenToSwipes(canvas, take);
  dark.addEventListener("change", () => {
    colours = palette();
    show();
  });
  addEventListener("resize", show);
  begin(0);
  requestAnimationFrame(frame);
}

start();
