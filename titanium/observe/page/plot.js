"use strict";
// Plots of what page.cpp describes, on canvases, with the least and the greatest value of each pixel where there are more
// points than pixels. page.js follows in the same script.

const PALETTE = ["#3b7ddd", "#e8833a", "#2ba37a", "#d6497f", "#8a63d2", "#c9a227", "#1aa3b8", "#d1495b", "#6b8e23", "#7a7f87"];
const DASHES = [[], [5, 3], [2, 2], [8, 3, 2, 3]];  // of the curves of one run, where several runs lie over each other
const PLOTS = [
  { id: "loss", title: "Loss", columns: ["loss"], validation: true },
  { id: "grad_norm", title: "Gradient norm", columns: ["grad_norm"] },
  { id: "lr", title: "Learning rate", columns: ["lr"], zero: true },
  { id: "tps", title: "Tokens per second and device", columns: ["tps"], zero: true },
  { id: "mfu", title: "MFU", unit: "%", columns: ["mfu"], zero: true },
  { id: "memory", title: "Memory", unit: "GiB", columns: ["memory_gib", "memory_active_gib"], names: ["reserved", "in tensors"], plan: true, zero: true },
  { id: "step_s", title: "Step time", unit: "s", columns: ["step_s"], zero: true },
  { id: "data_wait", title: "Waiting for data", unit: "%", columns: ["data_wait_percent"], zero: true },
  { id: "ranks", title: "Step time by rank", unit: "s", ranks: true },
  { id: "sources", title: "Tokens by source", prefix: "tokens_by_source/", zero: true },
  { id: "expert_load", title: "Largest load of an expert over the mean", prefix: "experts/", suffix: "/max_over_mean" },
  { id: "expert_entropy", title: "Evenness of the experts' load", prefix: "experts/", suffix: "/entropy" },
  { id: "expert_dead", title: "Experts without tokens", prefix: "experts/", suffix: "/dead", zero: true },
];
const HIDDEN = new Set(["max_loss", "tflops", "time_s", "unix_s", "tokens"]); // for axes, or said by another plot
const MARGIN = { left: 56, right: 10, top: 8, bottom: 20 };

const $ = (id) => document.getElementById(id);
const root = document.documentElement;
const state = { data: null, detail: null, zoom: null, axis: "step", smooth: 0, log: new Set(), large: null, hover: null, live: false };
let plots = [];

function make(tag, options = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(options)) {
    if (key === "text") node.textContent = value;
    else if (key === "class") node.className = value;
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// --- numbers for people -------------------------------------------------------------------------------------------------

const grouped = (value) => Math.round(value).toLocaleString("en-US");

function count(value) {
  for (const [size, unit] of [[1e12, " T"], [1e9, " B"], [1e6, " M"], [1e3, " k"]]) {
    if (Math.abs(value) >= size) return Number((value / size).toPrecision(3)) + unit;
  }
  return String(Number(value.toPrecision(3)));
}

function plain(value) {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5) return count(value);
  if (size >= 1000) return grouped(value);
  if (size < 1e-3) return value.toExponential(2).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(5)));
}

function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "–";
  const s = Math.max(0, Math.round(seconds));
  if (s >= 86400) return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
  if (s >= 3600) return `${Math.floor(s / 3600)} h ${Math.floor(s / 60) % 60} min`;
  if (s >= 60) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${s} s`;
}

const clock = (unix) => new Date(unix * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";

// --- the x axis ---------------------------------------------------------------------------------------------------------

// The index of the first element of the ascending list that is at least `value`.
function lowerBound(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < value) low = middle + 1; else high = middle;
  }
  return low;
}

// Maps steps of a run to what the axis shows, by interpolation.
function axisOf(run) {
  if (state.axis === "step") return (step) => step;
  const column = run.series[state.axis === "tokens" ? "tokens" : "unix_s"];
  if (!column || column.x.length === 0) return (step) => step;
  const origin = state.axis === "time" ? column.y[0] : 0;
  const { x, y } = column;
  return (step) => {
    const i = Math.min(Math.max(lowerBound(x, step), 1), x.length - 1);
    if (x.length === 1) return y[0] - origin;
    const share = (step - x[i - 1]) / (x[i] - x[i - 1] || 1);
    return y[i - 1] + share * (y[i] - y[i - 1]) - origin;
  };
}

function axisText(value) {
  if (state.axis === "time") return duration(value);
  return state.axis === "tokens" ? count(value) : (Math.abs(value) >= 1e5 ? count(value) : grouped(value));
}

// --- curves -------------------------------------------------------------------------------------------------------------

// A running mean as TensorBoard has it: exponential, without the bias of its first values.
function smoothed(y, weight) {
  const out = new Array(y.length);
  let sum = 0, norm = 0;
  for (let i = 0; i < y.length; i++) {
    if (y[i] === null) { out[i] = null; continue; }
    sum = sum * weight + (1 - weight) * y[i];
    norm = norm * weight + (1 - weight);
    out[i] = sum / norm;
  }
  return out;
}

function makeCurve(run, label, source, color, style = {}) {
  const map = axisOf(run);
  const y = source.y.map((value) => (value === null ? null : Number(value)));
  const curve = { label, color, steps: source.x, x: source.x.map(map), y, ...style };
  curve.line = state.smooth > 0 && !style.points ? smoothed(y, state.smooth) : null;
  return curve;
}

const withName = (run, label, several) => (several ? (label ? `${run.name}: ${label}` : run.name) : label);

// What the name of a column has between a plot's prefix and suffix: a source as it is called, "layer 3" for a layer of experts.
function nameOf(column, plot) {
  const name = column.slice(plot.prefix.length, column.length - (plot.suffix || "").length);
  return plot.prefix === "experts/" ? name.replace("_", " ") : name;
}

// The curves of a plot, for all runs.
function curvesOf(plot) {
  const runs = state.data.runs, several = runs.length > 1, curves = [];
  runs.forEach((run, r) => {
    const source = (state.detail && state.detail.runs[r]) || run;
    const known = (name) => source.series[name] && source.series[name].y.some((value) => value !== null);
    const names = plot.columns ? plot.columns.filter(known) :
      plot.ranks ? Object.keys(source.ranks) :
        Object.keys(source.series).filter((name) => name.startsWith(plot.prefix) && name.endsWith(plot.suffix || "")).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    names.forEach((name, i) => {
      const values = plot.ranks ? source.ranks[name] : source.series[name];
      if (!values.y.some((value) => value !== null)) return;
      const single = names.length === 1;
      const label = plot.ranks ? `rank ${name}` : plot.names ? single ? "" : plot.names[plot.columns.indexOf(name)] :
        plot.prefix ? nameOf(name, plot) : plot.validation ? "training" : "";
      const color = PALETTE[(several ? r : single ? 0 : i) % PALETTE.length];
      curves.push(makeCurve(run, withName(run, several && single ? "" : label, several), values, color, { dash: several ? i : 0 }));
    });
    if (!plot.validation) return;
    run.validation.filter((curve) => curve.x.length > 0).forEach((curve, i) => {
      const color = PALETTE[(several ? r : 1 + i) % PALETTE.length];
      curves.push(makeCurve(run, withName(run, curve.set ? `validation, ${curve.set}` : "validation", several), curve, color, { points: true }));
    });
  });
  return curves;
}

// Plots of columns that have no plot of their own.
function otherPlots() {
  const known = new Set([...HIDDEN, ...PLOTS.flatMap((plot) => plot.columns || [])]);
  const names = new Set(state.data.runs.flatMap((run) => Object.keys(run.series)));
  const free = [...names].filter((name) => !known.has(name) && !PLOTS.some((plot) => plot.prefix && name.startsWith(plot.prefix)));
  return free.sort().map((name) => ({ id: "other-" + name, title: name, columns: [name] }));
}

// --- drawing ------------------------------------------------------------------------------------------------------------

function niceTicks(low, high, most) {
  const span = high - low || 1, rough = span / Math.max(1, most), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((f) => f * power).find((s) => s >= rough);
  const ticks = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) ticks.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return ticks;
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of high / low > 1e3 ? [1] : [1, 2, 5]) {
      const value = factor * 10 ** power;
      if (value >= low && value <= high) ticks.push(value);
    }
  }
  return ticks.length > 1 ? ticks : niceTicks(low, high, 4).filter((value) => value > 0);
}

// What x values all plots show.
function domain() {
  if (state.zoom) return state.zoom;
  let low = Infinity, high = -Infinity;
  for (const plot of plots) {
    for (const curve of plot.curves) {
      if (curve.x.length === 0) continue;
      low = Math.min(low, curve.x[0]);
      high = Math.max(high, curve.x[curve.x.length - 1]);
    }
  }
  if (!(low < high)) { low = isFinite(low) ? low - 1 : 0; high = low + 2; }
  return [low, high];
}

function valueRange(plot, [from, to], log) {
  let low = Infinity, high = -Infinity;
  for (const curve of plot.curves) {
    const begin = Math.max(0, lowerBound(curve.x, from)), end = Math.min(curve.x.length, lowerBound(curve.x, to) + 1);
    for (let i = begin; i < end; i++) {
      const value = curve.y[i];
      if (value === null || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  for (const line of plot.lines) { low = Math.min(low, line.value); high = Math.max(high, line.value); }
  if (!isFinite(low)) return log ? [0.1, 1] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.08, high * 1.08];
  if (plot.spec.zero && low >= 0 && low < 0.7 * high) low = 0;
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  return [low === 0 ? 0 : low - room, high + room];
}

// One path through the points of a curve, at most four per pixel.
function trace(context, curve, values, scale, [from, to]) {
  const begin = Math.max(0, lowerBound(curve.x, from) - 1), end = Math.min(curve.x.length, lowerBound(curve.x, to) + 2);
  context.beginPath();
  let pen = false, pixel = null, first = 0, low = 0, high = 0, last = 0;
  const flush = () => {
    if (pixel === null) return;
    pen ? context.lineTo(pixel, first) : context.moveTo(pixel, first);
    pen = true;
    if (low !== high) { context.lineTo(pixel, low); context.lineTo(pixel, high); context.lineTo(pixel, last); }
    pixel = null;
  };
  const dense = end - begin > 2 * scale.width;
  for (let i = begin; i < end; i++) {
    const value = values[i];
    if (value === null || (scale.log && value <= 0)) { flush(); pen = false; continue; }
    const px = dense ? Math.round(scale.x(curve.x[i])) : scale.x(curve.x[i]), py = scale.y(value);
    if (px !== pixel) { flush(); pixel = px; first = low = high = py; }
    if (py < low) low = py;
    if (py > high) high = py;
    last = py;
  }
  flush();
  context.stroke();
}

function drawMarks(context, scale, box, colors) {
  state.data.runs.forEach((run, r) => {
    const map = axisOf(run);
    const color = state.data.runs.length > 1 ? PALETTE[r % PALETTE.length] : colors.soft;
    context.fillStyle = color;
    for (const saved of run.checkpoints) {
      const x = scale.x(map(saved.step));
      if (x < box.left || x > box.right) continue;
      context.globalAlpha = 0.85;
      context.beginPath();
      context.moveTo(x - 3.5, box.bottom); context.lineTo(x + 3.5, box.bottom); context.lineTo(x, box.bottom - 6);
      context.fill();
    }
    context.globalAlpha = 0.8;
    context.strokeStyle = colors.bad;
    context.setLineDash([4, 3]);
    for (const restart of run.restarts) {
      const x = Math.round(scale.x(map(restart.step))) + 0.5;
      if (x < box.left || x > box.right) continue;
      context.beginPath(); context.moveTo(x, box.top); context.lineTo(x, box.bottom); context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  });
}

function drawAxes(context, plot, scale, box, range, view, colors) {
  context.font = "11px system-ui, sans-serif";
  context.lineWidth = 1;
  context.strokeStyle = colors.grid;
  context.fillStyle = colors.soft;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const tick of scale.log ? logTicks(...range) : niceTicks(...range, Math.max(3, (box.bottom - box.top) / 30))) {
    const y = Math.round(scale.y(tick)) + 0.5;
    context.beginPath(); context.moveTo(box.left, y); context.lineTo(box.right, y); context.stroke();
    context.fillText(plain(Number(tick.toPrecision(12))), box.left - 6, y);
  }
  context.textBaseline = "top";
  context.textAlign = "center";
  for (const tick of niceTicks(...view, Math.max(2, (box.right - box.left) / 90))) {
    const x = scale.x(tick), text = axisText(tick), half = context.measureText(text).width / 2;
    if (x < box.left - 1 || x > box.right + 1) continue;
    context.fillText(text, Math.min(x, box.right + MARGIN.right - half), box.bottom + 5);
  }
  for (const line of plot.lines) {
    const y = Math.round(scale.y(line.value)) + 0.5;
    context.strokeStyle = line.color;
    context.setLineDash([6, 4]);
    context.beginPath(); context.moveTo(box.left, y); context.lineTo(box.right, y); context.stroke();
    context.setLineDash([]);
  }
}

function drawCurves(context, plot, scale, box, view) {
  context.save();
  context.beginPath();
  context.rect(box.left, box.top - 2, box.right - box.left, box.bottom - box.top + 4);
  context.clip();
  context.lineJoin = "round";
  for (const curve of plot.curves) {
    context.strokeStyle = context.fillStyle = curve.color;
    context.setLineDash(DASHES[Math.min(curve.dash || 0, DASHES.length - 1)]);
    context.lineWidth = curve.line ? 1 : 1.6;
    context.globalAlpha = curve.line ? 0.28 : 1;
    trace(context, curve, curve.y, scale, view);
    context.globalAlpha = 1;
    context.lineWidth = 1.9;
    if (curve.line) trace(context, curve, curve.line, scale, view);
    if (!curve.points) continue;
    curve.x.forEach((x, i) => {
      if (curve.y[i] === null || x < view[0] || x > view[1] || curve.x.length > 400) return;
      context.beginPath(); context.arc(scale.x(x), scale.y(curve.y[i]), 2.8, 0, 7); context.fill();
    });
  }
  context.restore();
}

// The values at the hovered x, one per curve that has a point near it.
function valuesAt(plot, x, view) {
  const near = (view[1] - view[0]) / 40, found = [];
  for (const curve of plot.curves) {
    let i = lowerBound(curve.x, x);
    if (i > 0 && (i === curve.x.length || x - curve.x[i - 1] < curve.x[i] - x)) i--;
    if (i < 0 || i >= curve.x.length || curve.y[i] === null) continue;
    const covers = curve.x.length > 1 && x >= curve.x[0] && x <= curve.x[curve.x.length - 1];
    if (Math.abs(curve.x[i] - x) <= near || (covers && !curve.points)) found.push({ curve, i });
  }
  return found;
}

function drawHover(context, plot, scale, box, view, colors) {
  const x = state.hover.x;
  if (x < view[0] || x > view[1]) return;
  context.strokeStyle = colors.soft;
  context.globalAlpha = 0.6;
  context.lineWidth = 1;
  context.beginPath(); context.moveTo(scale.x(x), box.top); context.lineTo(scale.x(x), box.bottom); context.stroke();
  context.globalAlpha = 1;
  for (const { curve, i } of valuesAt(plot, x, view)) {
    const value = curve.line ? curve.line[i] : curve.y[i];
    if (value === null || (scale.log && value <= 0)) continue;
    context.fillStyle = curve.color;
    context.beginPath(); context.arc(scale.x(curve.x[i]), scale.y(value), 3.2, 0, 7); context.fill();
  }
}

function draw(plot) {
  const { canvas } = plot, ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (width === 0 || height === 0) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const style = getComputedStyle(root), color = (name) => style.getPropertyValue(name).trim();
  const colors = { grid: color("--grid"), soft: color("--soft"), bad: color("--bad"), accent: color("--accent") };
  const box = { left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: height - MARGIN.bottom };
  const view = domain(), log = state.log.has(plot.spec.id), range = valueRange(plot, view, log);
  const bend = log ? Math.log10 : (value) => value, low = bend(range[0]), high = bend(range[1]);
  const scale = {
    log, width: box.right - box.left,
    x: (value) => box.left + ((value - view[0]) / (view[1] - view[0])) * (box.right - box.left),
    y: (value) => box.bottom - ((bend(value) - low) / (high - low)) * (box.bottom - box.top),
    back: (pixel) => view[0] + ((pixel - box.left) / (box.right - box.left)) * (view[1] - view[0]),
  };
  plot.scale = scale;
  plot.box = box;
  drawAxes(context, plot, scale, box, range, view, colors);
  drawMarks(context, scale, box, colors);
  drawCurves(context, plot, scale, box, view);
  if (plot.selection) {
    context.globalAlpha = 0.14;
    context.fillStyle = colors.accent;
    context.fillRect(plot.selection[0], box.top, plot.selection[1] - plot.selection[0], box.bottom - box.top);
    context.globalAlpha = 1;
  }
  if (state.hover) drawHover(context, plot, scale, box, view, colors);
  canvas.dataset.points = plot.curves.reduce((sum, curve) => sum + curve.x.length, 0);
  canvas.dataset.range = range.map((value) => Number(value.toPrecision(6))).join(" ");
}

let waiting = false;
function drawAll() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    plots.forEach(draw);
    if (state.data) document.body.dataset.drawn = String(plots.length); // a live page is empty at first
  });
}
