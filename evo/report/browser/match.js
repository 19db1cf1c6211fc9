// A match of a game of several players, whose rules are the class `Game` of another script, by the champion's network
// in any seat. A move is of whoever is on turn; where all move simultaneously, the last one plays the step.

const NUMBERED = 0, OF_GAME = 16, OF_OPPONENT = 18; // purposes of draws
const SEAT = 0xffffffff; // number of the draw of the champion's seat in a test episode

class Match {
  constructor(champion, seed) {
    let drawn = 0;
    this.champion = champion;
    this.game = new Game(champion.options, (n) => draw(seed, drawn++, n, OF_GAME));
    this.states = this.game.returns.map(() => champion.network.begin());
    this.observation = new Float32Array(champion.inputs);
    this.waiting = []; // moves of this step, where all move simultaneously
    this.steps = 0; // moves of all players
    this.outputs = null; // of the network's last decision
    this.decided = NOT_FINITE; // that decision
  }

  get turn() {
    return this.game.turn ?? this.waiting.length;
  }

  get over() {
    return this.game.over || this.steps >= this.champion.options.max_steps;
  }

  /** Return what the network does in the seat that is on turn. Outputs behind those of the actions are other heads. */
  decide() {
    const { champion, game, observation, turn } = this;
    observation.fill(0);
    game.observe(turn, observation);
    this.outputs = champion.network.outputs(observation, this.states[turn]).slice();
    return (this.decided = greedy(this.outputs.subarray(0, champion.actions), game.allowed()));
  }

  move(action) {
    const { game, waiting } = this;
    this.steps++;
    if (game.turn !== undefined) game.step(action);
    else if (waiting.push(action) === game.returns.length) game.step(waiting.splice(0));
  }

  /** Return 1 where a player has won, -1 where it has lost, 0 in a draw. */
  outcome(player) {
    const others = Math.max(...this.game.returns.filter((_, other) => other !== player));
    return Math.sign(this.game.returns[player] - others);
  }
}

/** A test episode: the champion in the seat that the seed draws, against the moves that its opponent has made. */
class Episode extends Match {
  constructor(champion, number) {
    const seed = testEpisodeSeed(number);
    super(champion, seed);
    this.moves = champion.moves[number - champion.first]; // of all players
    this.seat = draw(seed, SEAT, this.game.returns.length, NUMBERED);
    this.opponent = champion.opponents[draw(seed, 0, champion.opponents.length, OF_OPPONENT)];
    this.checksum = NO_OUTPUTS;
    this.outputCount = 0;
  }

  get score() {
    return this.outcome(this.seat);
  }

  step() {
    if (this.turn !== this.seat) return this.move(this.moves[this.steps]);
    const action = this.decide();
    this.checksum = checksumOf(this.outputs, this.checksum);
    this.outputCount += this.outputs.length;
    this.move(action);
  }
}

const episodeOf = (champion, number) => new Episode(champion, number);
