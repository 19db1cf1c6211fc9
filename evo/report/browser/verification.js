// Verify: play the recorded test episodes again and compare each with what the trainer's player made of it.
// Workers play them, so that the page stays responsive; where a browser allows none, this thread does, in slices.

const MOST_WORKERS = 8;
const SLICE = 30; // milliseconds
const recorded = data.recorded;
let running = null; // the verification that goes on: its token, whose `stopped` ends it

/** Yield nothing, but let the browser draw and react. */
const pause = () => new Promise((resolve) => setTimeout(resolve));

/** Play episodes in this thread and pass on what became of each. */
async function playHere(count, token, report) {
  let until = performance.now() + SLICE;
  for (let k = 0; k < count && !token.stopped; k++) {
    const episode = episodeOf(champion, data.first + k);
    while (!episode.over && !token.stopped) {
      episode.step();
      if (performance.now() > until) {
        await pause();
        until = performance.now() + SLICE;
      }
    }
    if (!token.stopped) report(k, resultOf(data.first + k, episode));
  }
}

/** Play episodes in workers, made from the script of this page, for a file may not load another one. */
function playInWorkers(count, token, report) {
  const script = `${at("core").textContent};serve(self);`;
  const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const workers = [];
  let next = 0, done = 0;
  return new Promise((resolve, reject) => {
    const give = (worker) => {
      if (next < count) worker.postMessage(data.first + next++);
    };
    token.stop = resolve;
    for (let k = 0; k < Math.min(navigator.hardwareConcurrency || 1, MOST_WORKERS, count); k++) {
      const worker = new Worker(address);
      workers.push(worker);
      worker.onerror = () => reject(new Error("a worker failed"));
      worker.onmessage = (event) => {
        report(event.data.number - data.first, event.data);
        if (++done === count) resolve();
        else give(worker);
      };
      worker.postMessage({ ...data, recorded: null });
      give(worker);
    }
  }).finally(() => {
    for (const worker of workers) worker.terminate();
    URL.revokeObjectURL(address);
  });
}

async function verify() {
  if (running !== null) {
    running.stopped = true;
    running.stop();
    return;
  }
  const most = recorded.scores.length;
  const wanted = Math.floor(Number(at("games").value));
  const count = Math.min(Math.max(wanted || most, 1), most);
  const token = { stopped: false, stop: () => {} };
  const results = new Array(count).fill(null);
  let done = 0;
  running = token;
  at("games").value = count;
  at("verify").textContent = "Stop";
  at("progress").hidden = false;
  at("progress").max = count;
  at("progress").value = 0;
  at("verdict").className = "";
  at("verdict").textContent = "";
  const report = (k, result) => {
    if (results[k] === null) at("progress").value = ++done;
    results[k] = result;
  };
  try {
    await playInWorkers(count, token, report);
  } catch {
    await playHere(count, token, report);
  }
  running = null;
  at("verify").textContent = "Verify";
  at("progress").hidden = true;
  if (token.stopped) at("verdict").textContent = "Stopped.";
  else conclude(results);
}

/** Say in words how many games are as recorded, and how the first one that is not differs. */
function conclude(results) {
  const sameGame = (result, k) => result.score === recorded.scores[k] && result.steps === recorded.steps[k];
  const sameBits = (result, k) => sameGame(result, k) && result.checksum === recorded.checksums[k];
  const games = results.filter(sameGame).length, exact = results.filter(sameBits).length;
  const outputs = results.reduce((sum, result) => sum + result.outputs, 0);
  const told = [`${games} of ${results.length} games: the same length and score.`];
  if (exact === results.length) {
    told.push(`All ${outputs.toLocaleString("en")} outputs of the network have the recorded checksums, bit for bit.`);
  } else {
    const first = results.findIndex((result, k) => !sameBits(result, k));
    const { score, steps } = results[first];
    told.push(`The outputs have other checksums in ${results.length - exact}.`);
    told.push(`The first is test episode ${first}: score ${score} after ${steps} steps,`);
    told.push(`recorded ${recorded.scores[first]} after ${recorded.steps[first]}.`);
  }
  at("verdict").className = exact === results.length ? "good" : "bad";
  at("verdict").textContent = told.join(" ");
}

at("games").max = recorded.scores.length;
at("games").value = recorded.scores.length;
at("verify").addEventListener("click", verify);
