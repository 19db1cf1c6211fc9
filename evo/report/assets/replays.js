// Plays the episodes of a report on canvases, all at the same step.
(() => {
  const host = document.getElementById("replays");
  if (!host) return;
  const CELL = 24, BORDER = "#3a4256", SPEEDS = [2, 5, 12, 30, 60, 240];
  const SHADES = {
    field: "#181c26", "field-2": "#1d222e", fruit: "#f85149", leaf: "#56d364", head: "#7ee787", tail: "#1a604a",
    eye: "#ffffff", pupil: "#0d1117",
  };
  let step = 0, last = 0, playing = 0, speed = 12;

  async function inflated(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  }

  function element(name, properties = {}, ...content) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...content);
    return made;
  }

  // A replay knows how to draw the position after so many steps.
  async function decoded(replay) {
    const data = await inflated(replay.data);
    const captions = new TextDecoder().decode(await inflated(replay.captions)).split("\n");
    const frame = (at) => Math.max(0, replay.frames - 1 - Math.ceil(Math.max(replay.steps - at, 0) / replay.every));
    const drawing = replay.kind === "board" ? board(replay, data) : picture(replay, data);
    return { ...replay, ...drawing, caption: (at) => captions[frame(at)], show: (at) => drawing.draw(frame(at)) };
  }

  function board(replay, data) {
    const numbers = new Int16Array(data), path = [...replay.start], ends = [path.length];
    for (let i = 1; i < replay.frames; i++) {
      if (numbers[4 * i] !== numbers[4 * i - 4]) path.push(numbers[4 * i]);
      ends.push(path.length);
    }
    const { size } = replay, side = 2 * (size + 1) * CELL; // with a border of half a cell
    const canvas = element("canvas", { width: side, height: side }), context = canvas.getContext("2d");
    const middle = (cell) => [cell % size + 0.5, Math.floor(cell / size) + 0.5];
    const draw = (i) => {
      const [, fruit, length, heading] = numbers.subarray(4 * i, 4 * i + 4);
      const over = i === replay.frames - 1 && fruit >= 0;
      context.setTransform(2 * CELL, 0, 0, 2 * CELL, CELL, CELL);
      context.fillStyle = BORDER;
      context.fillRect(-0.5, -0.5, size + 1, size + 1);
      drawField(context, size, SHADES);
      if (fruit >= 0) drawFruit(context, ...middle(fruit), SHADES);
      const body = path.slice(ends[i] - length, ends[i]).reverse().map(middle);
      drawSnake(context, body, heading, over ? { ...SHADES, pupil: SHADES.fruit } : SHADES);
    };
    return { canvas, draw };
  }

  function picture(replay, data) {
    const indices = new Uint8Array(data), size = replay.width * replay.height;
    for (let i = size; i < indices.length; i++) indices[i] ^= indices[i - size];
    const palette = replay.palette.map((colour) => parseInt(colour, 16));
    const factor = Math.max(1, Math.floor(320 / Math.max(replay.width, replay.height)));
    const small = element("canvas", { width: replay.width, height: replay.height }), narrow = small.getContext("2d");
    const canvas = element("canvas", { width: factor * replay.width, height: factor * replay.height });
    const context = canvas.getContext("2d"), image = narrow.createImageData(replay.width, replay.height);
    const draw = (i) => {
      for (let k = 0; k < size; k++) {
        const colour = palette[indices[i * size + k]];
        image.data.set([colour >> 16, colour >> 8 & 255, colour & 255, 255], 4 * k);
      }
      narrow.putImageData(image, 0, 0);
      context.imageSmoothingEnabled = false;
      context.drawImage(small, 0, 0, canvas.width, canvas.height);
    };
    return { canvas, draw };
  }

  function offer(replays) {
    const outputs = replays.map((replay) => element("output"));
    const boards = replays.map((replay, i) => {
      replay.canvas.setAttribute("role", "img");
      replay.canvas.setAttribute("aria-label", `${replay.label}: final score ${replay.score}`);
      const title = element("figcaption", {}, element("b", {}, replay.label));
      return element("figure", { className: "board" }, title, replay.canvas, outputs[i]);
    });
    const button = (text, label, act, className = "") => {
      const made = element("button", { type: "button", className, onclick: act }, text);
      made.setAttribute("aria-label", label);
      return made;
    };
    const play = button("Play", "Play or pause", () => (playing ? pause() : start()), "play");
    const place = element("input", { type: "range", min: 0, max: last, step: 1 });
    place.setAttribute("aria-label", "Step");
    place.addEventListener("input", () => {
      pause();
      show(Number(place.value));
    });
    const pace = element("select", {}, ...SPEEDS.map((value) => element("option", { value }, `${value} steps/s`)));
    pace.setAttribute("aria-label", "Speed");
    pace.value = String(speed);
    pace.addEventListener("change", () => { speed = Number(pace.value); });
    const counter = element("span", { className: "step" });

    function show(at) {
      step = Math.min(Math.max(at, 0), last);
      for (const [i, replay] of replays.entries()) {
        replay.show(step);
        const ended = step >= replay.steps;
        outputs[i].textContent = ended ? `score ${replay.score} after ${replay.steps} steps` : replay.caption(step);
      }
      place.value = String(step);
      counter.textContent = `step ${step} of ${last}`;
      host.dataset.step = String(step);
    }
    function pause() {
      clearInterval(playing);
      playing = 0;
      play.textContent = "Play";
    }
    function start() {
      if (step >= last) show(0);
      play.textContent = "Pause";
      let before = performance.now(), owed = 0;
      playing = setInterval(() => {
        const now = performance.now();
        owed += (now - before) / 1000 * speed;
        before = now;
        if (owed >= 1) {
          show(step + Math.floor(owed));
          owed %= 1;
        }
        if (step >= last) pause();
      }, 1000 / 60);
    }
    const controls = element("div", { className: "controls" },
      play,
      button("‹", "One step back", () => { pause(); show(step - 1); }),
      button("›", "One step on", () => { pause(); show(step + 1); }),
      place, counter, pace);
    host.replaceChildren(element("div", { className: "boards" }, ...boards), controls);
    host.addEventListener("keydown", (event) => {
      if (event.target === pace || (event.target === place && event.key.startsWith("Arrow"))) return;
      const acts = {
        " ": () => (playing ? pause() : start()), ArrowLeft: () => { pause(); show(step - 1); },
        ArrowRight: () => { pause(); show(step + 1); }, Home: () => { pause(); show(0); }, End: () => { pause(); show(last); },
      };
      if (!acts[event.key] || (event.key === " " && event.target.tagName === "BUTTON")) return;
      event.preventDefault();
      acts[event.key]();
    });
    show(last);
  }

  (async () => {
    try {
      const replays = await Promise.all(report.replays.map(decoded));
      last = Math.max(...replays.map((replay) => replay.steps));
      speed = SPEEDS.find((value) => last / value <= 45) || SPEEDS[SPEEDS.length - 1];
      speed = Math.max(speed, 12);
      offer(replays);
      document.body.dataset.replays = String(replays.length);
    } catch (error) {
      host.textContent = `The replays cannot be shown: ${error.message}`;
    }
  })();
})();
