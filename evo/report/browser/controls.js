// What the pages that play have in common: their data, the network's answers, swipes.

const SPEEDS = [1, 2, 4, 6, 8, 12, 20, 40, 80, 160, 400, 1000]; // steps per second

const data = JSON.parse(document.getElementById("data").textContent);
const champion = championOf(data);
const at = (id) => document.getElementById(id);
const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

/** List the actions by their names. */
function listAnswers(names) {
  for (const name of names) {
    const row = document.createElement("li");
    const [label, value, bar] = ["name", "value", "bar"].map((kind) => {
      const part = document.createElement("span");
      part.className = kind;
      return part;
    });
    label.textContent = name;
    bar.append(document.createElement("i"));
    row.append(label, value, bar);
    at("answers").append(row);
  }
}

/** Show the score of every action; the longer a bar, the nearer it is to the highest. */
function showAnswers(outputs, action) {
  const highest = Math.max(...outputs.subarray(0, champion.actions));
  for (let k = 0; k < champion.actions; k++) {
    const row = at("answers").children[k];
    row.classList.toggle("chosen", k === action);
    row.querySelector(".value").textContent = outputs[k].toFixed(3);
    row.querySelector("i").style.transform = `scaleX(${Math.exp(outputs[k] - highest)})`;
  }
}

/** Call `turn` with the direction of a swipe over a canvas: 0 up, 1 right, 2 down, 3 left. */
function listenToSwipes(canvas, turn) {
  let from = null;
  canvas.addEventListener("pointerdown", (event) => (from = [event.clientX, event.clientY]));
  canvas.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const right = event.clientX - from[0], down = event.clientY - from[1];
    if (Math.max(Math.abs(right), Math.abs(down)) < 24) return;
    turn(Math.abs(right) > Math.abs(down) ? (right > 0 ? 1 : 3) : down > 0 ? 2 : 0);
    from = [event.clientX, event.clientY];
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (from = null));
}
