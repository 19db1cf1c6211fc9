// An episode of Snake that a champion plays greedily.

class Episode {
  constructor(champion, seed) {
    this.champion = champion;
    this.board = new Board(champion.rules, seed);
    const { side, planes } = champion.seen;
    this.observation = new Float32Array(side * side * planes);
    this.state = champion.network.begin();
    this.checksum = NO_OUTPUTS;
    this.decide();
  }

  /** Ask the network what to do in this position. Outputs behind those of the actions are other heads, as a value. */
  decide() {
    const { champion, board, observation } = this;
    observe(board, champion.seen, observation);
    this.outputs = champion.network.outputs(observation, this.state).slice();
    this.action = greedy(this.outputs.subarray(0, champion.actions), board.mask(champion.mask));
    this.checksum = checksumOf(this.outputs, this.checksum);
  }

  get over() {
    return this.board.over !== ALIVE || this.action === NOT_FINITE;
  }

  get score() {
    return this.board.score;
  }

  get steps() {
    return this.board.steps;
  }

  get outputCount() {
    return this.steps * this.outputs.length;
  }

  step() {
    if (this.over) return;
    this.board.step(this.action);
    if (this.board.over === ALIVE) this.decide();
  }
}

const episodeOf = (champion, number) => new Episode(champion, testEpisodeSeed(number));
