// The page: a game that the champion plays, alone or beside the reader, and the buttons and keys that steer it.

const WATCHING = 5, PLAYING = 3; // places in SPEEDS to start with
const BETWEEN_GAMES = 1600; // milliseconds
const FRAME = 12; // milliseconds of a frame that steps may take, so that the page stays responsive
const MOST_TURNS = 2; // key presses that wait for their step
const LAST_EPISODE = 999999;
const ARROWS = { ArrowUp: 0, ArrowRight: 1, ArrowDown: 2, ArrowLeft: 3 };
const NAMES = { 3: ["Left", "Straight", "Right"], 4: ["Up", "Right", "Down", "Left"] };

let colours = palette();

const game = {
  number: 0, // of the test episode
  episode: null,
  human: null, // the reader's board, or null
  turns: [], // directions that the reader has pressed and that are not played yet
  playing: !still.matches,
  speed: WATCHING,
  share: 1, // of the last step that is shown
  ended: 0, // milliseconds since the end
  last: 0, // time of the last frame
};

/** Begin a test episode; with `versus`, the reader plays the same one: the same start, the same fruits. */
function begin(number, versus = game.human !== null) {
  const seed = testEpisodeSeed(data.first + number);
  game.number = number;
  game.episode = new Episode(champion, seed);
  game.human = versus ? new Board({ ...champion.rules, relative: false }, seed) : null;
  game.turns = [];
  game.share = 1;
  game.ended = 0;
  at("episode").value = number;
  if (versus) game.playing = false; // until the first arrow
  show();
}

const championOver = () => game.episode.over;
const humanOver = () => game.human === null || game.human.over !== ALIVE;
const allOver = () => championOver() && humanOver();

function tick() {
  if (game.human !== null) game.human.move(game.turns.length > 0 ? game.turns.shift() : game.human.heading);
  game.episode.step();
  game.share = 0;
}

function frame(now) {
  const passed = Math.min(now - game.last, 250);
  game.last = now;
  if (game.playing && !allOver()) {
    const until = performance.now() + FRAME;
    game.share += (passed / 1000) * SPEEDS[game.speed];
    while (game.share >= 1 && !allOver() && performance.now() < until) {
      const rest = game.share - 1;
      tick();
      game.share = rest;
    }
    game.share = Math.min(game.share, 1); // a slow machine plays slower; it does not catch up later
    show();
  } else if (allOver() && game.share < 1) {
    game.share = 1;
    show();
  } else if (game.playing && game.human === null && (game.ended += passed) > BETWEEN_GAMES) {
    nextGame();
  }
  requestAnimationFrame(frame);
}

/** Return how a board ended, in words, or nothing while it goes on. */
function ending(board) {
  if (board.over === ALIVE) return "";
  if (board.won) return `The board is full: ${board.score} fruits`;
  const { starvation, maxSteps } = board.rules;
  if (board.over === TERMINATED) return `Collision after ${board.score} fruits`;
  const starved = starvation > 0 && board.hunger >= starvation;
  return starved ? `Starved: ${starvation} steps without a fruit` : `Stopped after ${maxSteps} steps`;
}

function show() {
  const { episode, human } = game;
  const share = still.matches ? 1 : game.share;
  const { board } = episode;
  at("human").hidden = human === null; // before anything is drawn: it changes how large the boards are
  document.body.classList.toggle("versus", human !== null);
  at("versus").textContent = human === null ? "Play against it" : "Only watch";
  drawBoard(at("champion-board"), board, share, colours);
  drawObservation(at("seen"), episode.observation, champion.seen, colours);
  at("fruits").textContent = board.score;
  at("steps").textContent = board.steps;
  at("speed").textContent = SPEEDS[game.speed];
  at("champion-score").textContent = `${board.score}`;
  const notFinite = episode.action === NOT_FINITE ? "The network's outputs are not finite" : "";
  at("champion-end").textContent = notFinite || ending(board);
  at("champion-board").setAttribute("aria-label", `The champion's board: ${board.score} fruits, ${board.steps} steps`);
  at("play").textContent = allOver() ? "Again" : game.playing ? "Pause" : "Play";
  at("step").disabled = human !== null || allOver();
  at("slower").disabled = game.speed === 0;
  at("faster").disabled = game.speed === SPEEDS.length - 1;
  showAnswers(episode.outputs, episode.action);
  if (human !== null) {
    drawBoard(at("human-board"), human, share, colours);
    at("human-score").textContent = `${human.score}`;
    at("human-board").setAttribute("aria-label", `Your board: ${human.score} fruits, ${human.steps} steps`);
    at("human-end").textContent = human.over !== ALIVE ? verdictOf(human.score, board.score)
      : human.steps === 0 ? "Press an arrow key, or swipe" : "";
  }
}

function verdictOf(mine, theirs) {
  const own = ending(game.human);
  if (!championOver()) return `${own}. The champion plays on`;
  return `${own}. ${mine > theirs ? "You win" : mine < theirs ? "The champion wins" : "A draw"}, ${mine} to ${theirs}`;
}

function playOrPause() {
  if (allOver()) begin(game.number);
  else if (game.human !== null && game.human.steps === 0) return; // it begins with an arrow
  else game.playing = !game.playing;
  show();
}

function oneStep() {
  if (game.human !== null || allOver()) return;
  game.playing = false;
  tick();
  game.share = 1;
  show();
}

function changeSpeed(by) {
  game.speed = Math.min(Math.max(game.speed + by, 0), SPEEDS.length - 1);
  show();
}

function nextGame() {
  begin(game.number < LAST_EPISODE ? game.number + 1 : 0);
}

/** Take a turn of the reader. Turning back would be a collision that nobody wants, so it is ignored. */
function turn(direction) {
  const { human, turns } = game;
  if (human === null || human.over !== ALIVE) return;
  const heading = turns.length > 0 ? turns[turns.length - 1] : human.heading;
  const back = direction === ((heading + 2) & 3) && human.body.length > 1;
  if (!back && turns.length < MOST_TURNS && (direction !== heading || human.steps === 0)) turns.push(direction);
  if (human.steps === 0 && !back) game.playing = true;
}

function toggleVersus() {
  const versus = game.human === null;
  game.speed = versus ? PLAYING : WATCHING;
  game.playing = !versus;
  begin(game.number, versus);
  if (versus) at("human").scrollIntoView({ block: "nearest" });
  at("versus").blur(); // or the space key would press the button again
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const { key } = event;
  if (key === " " && event.target.closest("button")) return; // it presses that button
  if (game.human !== null && key in ARROWS) turn(ARROWS[key]);
  else if (key === " ") playOrPause();
  else if (key === "ArrowRight") oneStep();
  else if (key === "+" || key === "=") changeSpeed(1);
  else if (key === "-") changeSpeed(-1);
  else if (key === "n" || key === "N") nextGame();
  else return;
  event.preventDefault(); // the page does not scroll under the game
}

function start() {
  listAnswers(NAMES[champion.actions]);
  at("block").textContent = `of block ${data.block}`;
  at("play").addEventListener("click", playOrPause);
  at("step").addEventListener("click", oneStep);
  at("slower").addEventListener("click", () => changeSpeed(-1));
  at("faster").addEventListener("click", () => changeSpeed(1));
  at("next").addEventListener("click", nextGame);
  at("versus").addEventListener("click", toggleVersus);
  at("episode").addEventListener("change", () => {
    const number = Number(at("episode").value);
    begin(Number.isInteger(number) && number >= 0 && number <= LAST_EPISODE ? number : game.number);
  });
  for (const button of document.querySelectorAll("[data-direction]")) {
    button.addEventListener("pointerdown", () => turn(Number(button.dataset.direction)));
  }
  document.addEventListener("keydown", pressed);
  listenToSwipes(at("human-board"), turn);
  dark.addEventListener("change", () => {
    colours = palette();
    show();
  });
  addEventListener("resize", show);
  begin(0);
  requestAnimationFrame(frame);
}

start();
