"use strict";
// Draws the charts of a report with uPlot, from the JSON in #data.

(() => {
  const AXES = { frames: report.runs[0]?.step, seconds: "seconds", generation: "generation" };
  const DASHES = [[], [6, 4], [2, 3]];
  const BORDERS = ["solid", "dashed", "dotted"];
  const COLOURS = 8;
  const root = document.documentElement;
  const places = [...document.querySelectorAll("[data-chart]")];
  const drawn = new Map();
  let over = "frames";

  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
  const line = (number) => colour(`c${number % COLOURS}`);
  const font = (size) => `${size}px system-ui, -apple-system, "Segoe UI", Arial, sans-serif`;

  function short(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    for (const [limit, unit] of [[1e9, " G"], [1e6, " M"], [1e4, " k"]]) {
      if (size >= limit) return Number((value / limit * (limit === 1e4 ? 10 : 1)).toPrecision(3)) + unit;
    }
    if (size !== 0 && size < 1e-3) return value.toExponential(1);
    return String(Number(value.toPrecision(4)));
  }

  // The points of a series without gaps in its values, in the order of x, each x once.
  function points(chart, series) {
    const xs = [], ys = [], from = series.x || chart.x || report.runs[series.run][over];
    series.values.forEach((y, i) => {
      if (y !== null && from[i] !== null && (!xs.length || from[i] > xs[xs.length - 1])) {
        xs.push(from[i]);
        ys.push(y);
      }
    });
    return [xs, ys];
  }

  function options(chart, place, small) {
    const grid = { stroke: colour("grid"), width: 1 };
    const axis = {
      stroke: colour("quiet"), font: font(11), labelFont: font(11), grid, ticks: { ...grid, size: 4 },
      values: (_, ticks) => ticks.map(short), gap: 4,
    };
    const label = chart.across || (chart.x ? "generation" : AXES[over]);
    return {
      width: Math.max(place.clientWidth, 120),
      height: small ? 120 : 280,
      pxAlign: 0,
      padding: [10, 20, 0, 0],
      scales: { x: { time: false } },
      axes: [
        { ...axis, size: small ? 22 : 26, space: 70, ...(small ? {} : { label, labelSize: 18, labelGap: 0 }) },
        { ...axis, size: small ? 42 : 46, space: small ? 28 : 36 },
      ],
      series: [{ label, value: (_, value) => short(value) }],
      legend: { show: !small },
      cursor: { y: false, points: { size: 6 }, drag: { x: true, y: false }, ...(chart.x || chart.across ? {} : { sync: { key: over } }) },
      hooks: {},
    };
  }

  function lines(chart, place, small) {
    const drawing = options(chart, place, small);
    const tables = chart.series.map((series) => points(chart, series));
    for (const [i, series] of chart.series.entries()) {
      const few = tables[i][0].length < 2 || (chart.series.length < 3 && tables[i][0].length <= 30 && !small);
      const filter = series.points ? () => series.points : undefined;
      drawing.series.push({
        label: series.label, stroke: line(series.colour), width: small ? 1.5 : 2, dash: DASHES[series.dash],
        spanGaps: true, value: (_, value) => short(value), points: { show: few || !!series.points, size: 5, fill: colour("paper"), filter },
      });
    }
    drawing.legend.markers = {
      width: 2, stroke: (_, i) => i ? line(chart.series[i - 1].colour) : "transparent", fill: () => "transparent",
      dash: (_, i) => i ? BORDERS[chart.series[i - 1].dash] : "solid",
    };
    const marked = [
      ...(chart.levels || []).map((one) => one.value), ...(chart.spans || []).flatMap((one) => [one.low, one.high]),
      ...chart.series.flatMap((series) => (series.low ? [Math.min(...series.low), Math.max(...series.high)] : [])),
    ];
    drawing.scales.y = {
      range: (_, low, high) => {
        const known = [low, high, ...marked].filter((value) => value !== null);
        return known.length ? uPlot.rangeNum(Math.min(...known), Math.max(...known), 0.08, true) : [0, 1];
      },
    };
    drawing.hooks.drawAxes = [(plot) => bands(plot, chart)];
    drawing.hooks.draw = [(plot) => levels(plot, chart.levels || []), (plot) => spans(plot, chart, tables)];
    return new uPlot(drawing, uPlot.join(tables), place);
  }

  // What other players score: thin lines with their names, which share a name where they are too close.
  function levels(plot, all) {
    const { ctx, bbox } = plot, ratio = plot.pxRatio || devicePixelRatio;
    const named = [];
    ctx.save();
    ctx.font = font(11 * ratio);
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    for (const { label, value } of [...all].sort((one, other) => other.value - one.value)) {
      const y = plot.valToPos(value, "y", true), last = named[named.length - 1];
      ctx.strokeStyle = colour("quiet");
      ctx.lineWidth = ratio;
      ctx.setLineDash([2 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      if (last && y - last.y < 14 * ratio) last.text += `, ${label} ${short(value)}`;
      else named.push({ y, text: `${label} ${short(value)}` });
    }
    ctx.fillStyle = colour("quiet");
    for (const { y, text } of named) {
      const below = y - bbox.top < 14 * ratio;
      ctx.fillText(text, bbox.left + 4 * ratio, y + (below ? 12 : -4) * ratio);
    }
    ctx.restore();
  }

  // The 95 % interval at every point of a curve.
  function bands(plot, chart) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const { x, low, high, colour: number } of chart.series) {
      if (!low) continue;
      ctx.fillStyle = line(number);
      ctx.globalAlpha = 0.18;
      ctx.beginPath();
      x.forEach((at, i) => ctx.lineTo(plot.valToPos(at, "x", true), plot.valToPos(high[i], "y", true)));
      for (let i = x.length - 1; i >= 0; i--) ctx.lineTo(plot.valToPos(x[i], "x", true), plot.valToPos(low[i], "y", true));
      ctx.fill();
    }
    ctx.restore();
  }

  // The 95 % interval of the last test score.
  function spans(plot, chart, tables) {
    const { ctx } = plot, ratio = plot.pxRatio || devicePixelRatio;
    for (const span of chart.spans || []) {
      const number = chart.series.findIndex((series) => series.run === span.run);
      if (number < 0 || !tables[number][0].length) continue;
      const x = plot.valToPos(tables[number][0][tables[number][0].length - 1], "x", true);
      const ends = [span.low, span.high].map((value) => plot.valToPos(value, "y", true));
      ctx.save();
      ctx.strokeStyle = line(chart.series[number].colour);
      ctx.lineWidth = 2 * ratio;
      ctx.beginPath();
      ctx.moveTo(x, ends[0]);
      ctx.lineTo(x, ends[1]);
      for (const y of ends) {
        ctx.moveTo(x - 4 * ratio, y);
        ctx.lineTo(x + 4 * ratio, y);
      }
      ctx.stroke();
      ctx.restore();
    }
  }

  function stack(chart, place) {
    const drawing = options(chart, place, false);
    const layers = [...chart.series].reverse();
    const number = (i) => chart.series.length - i;
    for (const [i, layer] of layers.entries()) {
      drawing.series.push({
        label: layer.label, fill: line(number(i + 1)), width: 0, points: { show: false },
        value: (_, __, ___, at) => short(at === null ? null : layer.own[at]),
      });
    }
    drawing.legend.markers = { width: 0, fill: (_, i) => i ? line(number(i)) : "transparent" };
    drawing.scales.y = { range: () => [0, chart.top > 0 ? chart.top * 1.05 : 1] };
    drawing.cursor.points = { show: false };
    return new uPlot(drawing, [report.runs[0][over], ...layers.map((layer) => layer.values)], place);
  }

  function heat(chart, place) {
    const drawing = options(chart, place, false), { x, edges, counts } = chart;
    const half = (i, step) => (x[i + step] === undefined ? x[i] + step / 2 : (x[i] + x[i + step]) / 2);
    drawing.legend.show = false;
    drawing.cursor = { show: false };
    drawing.scales.x.range = () => [half(0, -1), half(x.length - 1, 1)];
    drawing.scales.y = { range: () => [edges[0], edges[edges.length - 1]] };
    drawing.series.push({ paths: () => null, points: { show: false } });
    drawing.hooks.draw = [(plot) => {
      const { ctx } = plot;
      ctx.save();
      ctx.fillStyle = line(0);
      counts.forEach((column, i) => {
        const most = Math.max(...column);
        const left = Math.round(plot.valToPos(half(i, -1), "x", true)), right = Math.round(plot.valToPos(half(i, 1), "x", true));
        column.forEach((count, j) => {
          if (!count) return;
          const bottom = Math.round(plot.valToPos(edges[j], "y", true)), top = Math.round(plot.valToPos(edges[j + 1], "y", true));
          ctx.globalAlpha = 0.1 + 0.9 * Math.sqrt(count / most);
          ctx.fillRect(left, top, right - left, bottom - top);
        });
      });
      ctx.restore();
    }];
    return new uPlot(drawing, [x, x.map(() => edges[0])], place);
  }

  function draw(place) {
    const chart = report.charts[Number(place.dataset.chart)];
    if (drawn.has(place)) drawn.get(place).destroy();
    const kinds = { lines, stack, heat, small: (one, where) => lines(one, where, true) };
    drawn.set(place, kinds[chart.kind](chart, place));
    place.tabIndex = 0;
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", `Chart: ${chart.title}. The left and right arrow keys move through its points.`);
  }

  const drawAll = () => places.forEach(draw);

  // Arrow keys move the cursor of the chart that has the focus.
  function move(place, step) {
    const plot = drawn.get(place), xs = plot.data[0];
    const before = plot.cursor.idx, at = before === null || before === undefined ? (step > 0 ? 0 : xs.length - 1) : before + step;
    if (at < 0 || at >= xs.length) return;
    plot.setCursor({ left: plot.valToPos(xs[at], "x"), top: 10 });
  }

  function offerAxes() {
    const host = document.getElementById("axis");
    if (!host) return;
    for (const [name, title] of Object.entries(AXES)) {
      const label = document.createElement("label"), input = document.createElement("input");
      Object.assign(input, { type: "radio", name: "axis", value: name, checked: name === over });
      input.addEventListener("change", () => {
        over = name;
        drawAll();
      });
      label.append(input, title === "generation" ? "generations" : title);
      host.append(label);
    }
  }

  offerAxes();
  drawAll();
  for (const place of places) {
    place.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      move(place, step);
    });
  }
  const sizes = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const plot = drawn.get(target), width = Math.max(target.clientWidth, 120);
      if (Math.abs(plot.width - width) > 1) plot.setSize({ width, height: plot.height });
    }
  });
  places.forEach((place) => sizes.observe(place));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => {
    root.classList.add("print");
    drawAll();
  });
  addEventListener("afterprint", () => {
    root.classList.remove("print");
    drawAll();
  });
  document.body.dataset.charts = String(drawn.size);
})();
