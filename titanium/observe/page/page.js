// The page around the plots of plot.js. All text of a run goes into text nodes.

// --- pointer ------------------------------------------------------------------------------------------------------------

function showTip(plot, event) {
  const tip = $("tip") || document.body.appendChild(make("div", { id: "tip" }));
  const view = domain(), lines = [make("div", {}, make("span", { class: "mark", text: `${state.axis} ${axisText(state.hover.x)}` }))];
  const found = valuesAt(plot, state.hover.x, view);
  if (found.length > 0 && state.axis !== "step") lines[0].append(make("b", { text: `step ${grouped(found[0].curve.steps[found[0].i])}` }));
  for (const { curve, i } of found.slice(0, 14)) {
    const value = curve.line ? `${plain(curve.line[i])} (${plain(curve.y[i])})` : plain(curve.y[i]);
    lines.push(make("div", {}, make("i", { class: "dot", style: { background: curve.color } }), make("span", { text: curve.label || plot.spec.title }), make("b", { text: value + (plot.spec.unit ? ` ${plot.spec.unit}` : "") })));
  }
  for (const run of state.data.runs) {
    const map = axisOf(run), near = (step) => Math.abs(plot.scale.x(map(step)) - plot.scale.x(state.hover.x)) < 5;
    for (const saved of run.checkpoints.filter((item) => near(item.step)).slice(0, 1)) lines.push(make("div", { class: "mark", text: `▲ checkpoint of step ${grouped(saved.step)}, written in ${plain(saved.seconds)} s` }));
    for (const restart of run.restarts.filter((item) => near(item.step)).slice(0, 1)) lines.push(make("div", { class: "mark", text: `┆ went on from step ${grouped(restart.step)} at ${clock(restart.unix_s)}` }));
  }
  tip.replaceChildren(...lines);
  tip.hidden = false;
  const place = tip.getBoundingClientRect();
  const x = event.clientX + 16 + place.width > innerWidth ? event.clientX - place.width - 12 : event.clientX + 16;
  tip.style.left = `${Math.max(4, x)}px`;
  tip.style.top = `${Math.min(innerHeight - place.height - 6, event.clientY + 14)}px`;
}

function leave() {
  state.hover = null;
  if ($("tip")) $("tip").hidden = true;
  drawAll();
}

function zoomTo(range) {
  state.zoom = range;
  state.detail = null;
  $("reset").disabled = range === null;
  rebuildCurves();
  if (state.live) refresh();
}

function listen(plot) {
  const { canvas } = plot, at = (event) => event.clientX - canvas.getBoundingClientRect().left;
  let begin = null;
  canvas.addEventListener("pointerdown", (event) => {
    begin = at(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!plot.scale) return;
    state.hover = { x: Math.min(Math.max(plot.scale.back(at(event)), domain()[0]), domain()[1]) };
    if (begin !== null && Math.abs(at(event) - begin) > 6) plot.selection = [begin, at(event)].sort((a, b) => a - b);
    showTip(plot, event);
    drawAll();
  });
  canvas.addEventListener("pointerup", () => {
    const chosen = plot.selection;
    begin = plot.selection = null;
    if (chosen && chosen[1] - chosen[0] > 6) zoomTo(chosen.map((pixel) => plot.scale.back(Math.min(Math.max(pixel, plot.box.left), plot.box.right))));
    else drawAll();
  });
  canvas.addEventListener("pointercancel", () => { begin = plot.selection = null; leave(); });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("dblclick", () => zoomTo(null));
}

// --- the page -----------------------------------------------------------------------------------------------------------

function buildPlot(spec) {
  const pressed = (on) => String(on);
  const log = make("button", { class: "push", text: "log", title: "Logarithmic scale", "aria-pressed": pressed(state.log.has(spec.id)) });
  const large = make("button", { text: "⤢", title: "Larger", "aria-label": "Larger", "aria-pressed": pressed(state.large === spec.id) });
  const canvas = make("canvas", { role: "img" }), now = make("span", { class: "now" }), legend = make("div", { class: "legend" });
  const title = spec.unit ? `${spec.title} (${spec.unit})` : spec.title;
  const card = make("article", { class: "card plot", "data-plot": spec.id }, make("div", { class: "top" }, make("h2", { text: title }), now, log, large), canvas, legend);
  card.classList.toggle("large", state.large === spec.id);
  const plot = { spec, canvas, now, legend, card, curves: [], lines: [] };
  log.addEventListener("click", () => {
    state.log.has(spec.id) ? state.log.delete(spec.id) : state.log.add(spec.id);
    log.setAttribute("aria-pressed", pressed(state.log.has(spec.id)));
    draw(plot);
  });
  large.addEventListener("click", () => {
    state.large = state.large === spec.id ? null : spec.id;
    for (const other of plots) other.card.classList.toggle("large", other.spec.id === state.large);
    large.setAttribute("aria-pressed", pressed(state.large === spec.id));
    drawAll();
  });
  listen(plot);
  return plot;
}

function fillPlot(plot) {
  const { spec } = plot, several = state.data.runs.length > 1;
  plot.curves = curvesOf(spec);
  plot.lines = [];
  if (spec.plan) {
    state.data.runs.forEach((run, r) => {
      if (run.planned_memory_gib > 0) plot.lines.push({ value: run.planned_memory_gib, label: withName(run, "planned", several), color: several ? PALETTE[r % PALETTE.length] : PALETTE[3] });
    });
  }
  const last = (curve) => [...curve.y].reverse().find((value) => value !== null);
  plot.now.textContent = plot.curves.length === 1 || (!several && !plot.spec.prefix && !plot.spec.ranks && plot.curves.length > 0) ? plain(last(plot.curves[0])) : "";
  plot.canvas.setAttribute("aria-label", `${spec.title}: ${plot.curves.map((curve) => `${curve.label} ${plain(last(curve))}`).join(", ")}`);
  const entries = [...plot.curves.map((curve) => [curve, curve.points ? "points" : curve.dash > 1 ? "dots" : curve.dash ? "dash" : ""]), ...plot.lines.map((line) => [line, "dash"])];
  plot.legend.replaceChildren(...(entries.length > 1 ? entries.map(([item, kind]) => make("span", {}, make("i", { class: kind, style: { borderColor: item.color, background: kind === "points" ? item.color : "" } }), item.label)) : []));
}

function rebuildCurves() {
  plots.forEach(fillPlot);
  drawAll();
}

function buildPlots() {
  const specs = [...PLOTS, ...otherPlots()].filter((spec) => curvesOf(spec).length > 0);
  const same = plots.length > 0 && plots.length === specs.length && plots.every((plot, i) => plot.spec.id === specs[i].id);
  if (!same) {
    plots = specs.map(buildPlot);
    $("plots").replaceChildren(...plots.map((plot) => plot.card));
    if (plots.length === 0) $("plots").append(make("p", { class: "card empty", text: "No step has been logged yet." }));
  }
  rebuildCurves();
}

function tile(name, value, small) {
  const number = make("dd", { text: value });
  if (small) number.append(make("small", { text: small }));
  return make("div", {}, make("dt", { text: name }), number);
}

function tilesOf(run) {
  const s = run.summary, tiles = [];
  const share = s.total_steps > 0 ? `of ${grouped(s.total_steps)}` : "";
  tiles.push(tile("step", grouped(s.step), share));
  if (s.seconds_left !== null) tiles.push(tile("time left", duration(s.seconds_left)));
  tiles.push(tile("running for", duration(s.elapsed)));
  if (s.tokens !== null) tiles.push(tile("tokens", count(s.tokens)));
  if (s.loss !== null) tiles.push(tile("loss", plain(s.loss)));
  for (const { set, loss } of s.validation) if (loss !== null) tiles.push(tile(set ? `validation, ${set}` : "validation", plain(loss)));
  if (s.tps !== null) tiles.push(tile("tokens/s/device", plain(s.tps)));
  if (s.mfu !== null) tiles.push(tile("MFU", `${plain(Number(s.mfu.toPrecision(3)))} %`));
  if (s.memory_gib !== null) tiles.push(tile("memory", `${plain(Number(s.memory_gib.toPrecision(3)))} GiB`));
  if (s.goodput !== null) tiles.push(tile("goodput", `${(100 * s.goodput).toFixed(1)} %`));
  if (s.restarts > 0) tiles.push(tile("restarts", String(s.restarts)));
  const saved = run.checkpoints[run.checkpoints.length - 1];
  if (saved) tiles.push(tile("last checkpoint", grouped(saved.step), s.state === "running" ? `${duration(state.data.generated - saved.unix_s)} ago` : ""));
  return tiles;
}

function buildRun(run, r) {
  const s = run.summary, color = PALETTE[r % PALETTE.length];
  const head = make("div", { class: "head" }, make("i", { class: "dot", style: { background: color } }), make("span", { class: "name", text: run.name }),
    make("span", { class: "state " + s.state.replace(" ", "-"), text: s.state }),
    make("span", { class: "about", text: [run.model, run.description].filter((text) => text && text !== "default job").join(" · ") }));
  const card = make("article", { class: "card run", "data-run": run.name, "data-state": s.state }, head);
  if (s.total_steps > 0) {
    const done = Math.min(1, s.step / s.total_steps);
    card.append(make("div", { class: "bar", role: "progressbar", "aria-valuenow": String(Math.round(100 * done)) }, make("div", { style: { width: `${100 * done}%`, background: color } })));
  }
  card.append(make("dl", { class: "tiles" }, ...tilesOf(run)));
  if (run.error) {
    const what = s.state === "failed" ? "Failed" : "An earlier error";
    card.append(make("div", { class: "error" }, make("strong", { text: `${what}, rank ${run.error.rank}, ${clock(run.error.unix_s)}` }), make("pre", { text: run.error.message })));
  }
  for (const note of run.notes) card.append(make("p", { class: "note", text: note }));
  return card;
}

function foldable(id, title, ...content) {
  const before = document.querySelector(`details[data-part="${id}"]`);
  const node = make("details", { class: "card", "data-part": id }, make("summary", { text: title }), make("div", {}, ...content));
  if (before ? before.open : id === "pipeline" || id === "changed") node.open = true;
  return node;
}

const row = (cells, tag = "td") => make("tr", {}, ...cells.map((cell) => (typeof cell === "string" ? make(tag, { text: cell }) : cell)));
const code = (text, kind = "code") => make("td", { class: kind, text: text === undefined ? "" : String(text) });

// The options that differ from the defaults in any run.
function changedTable() {
  const runs = state.data.runs, names = [...new Set(runs.flatMap((run) => (run.changed || []).map((item) => item.name)))];
  const rows = names.map((name) => {
    const found = runs.map((run) => (run.changed || []).find((item) => item.name === name));
    const one = found.find((item) => item), source = runs.length === 1 ? [code(one.source, "soft")] : [];
    return row([code(name), ...found.map((item) => code(item ? item.value : one.default, item ? "code" : "code soft")), code(one.default, "code soft"), ...source]);
  });
  const head = ["option", ...(runs.length === 1 ? ["value"] : runs.map((run) => run.name)), "default", ...(runs.length === 1 ? ["from"] : [])];
  return rows.length === 0 ? null : make("table", {}, row(head, "th"), ...rows);
}

function environmentTable() {
  const runs = state.data.runs, names = [...new Set(runs.flatMap((run) => Object.keys(run.environment || {})))];
  if (names.length === 0) return null;
  return make("table", {}, row(["", ...runs.map((run) => run.name)], "th"), ...names.map((name) => row([name, ...runs.map((run) => code((run.environment || {})[name]))])));
}

function pipelineFigure(run) {
  const bytes = new TextEncoder().encode(run.pipeline.svg);
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  // As an image: whatever it holds, it cannot run scripts.
  const image = make("img", { src: "data:image/svg+xml;base64," + btoa(binary), alt: run.pipeline.title });
  return make("figure", {}, image, make("figcaption", { text: withName(run, run.pipeline.title, state.data.runs.length > 1) }));
}

function buildDetails() {
  const runs = state.data.runs, parts = [], changed = changedTable(), environment = environmentTable();
  const pipelines = runs.filter((run) => run.pipeline);
  if (pipelines.length > 0) parts.push(foldable("pipeline", "Pipeline", ...pipelines.map(pipelineFigure)));
  if (changed) parts.push(foldable("changed", "Configuration: what differs from the defaults", changed));
  if (environment) parts.push(foldable("environment", "Environment", environment));
  runs.forEach((run, r) => {
    if (run.config) parts.push(foldable(`config-${r}`, runs.length > 1 ? withName(run, "whole configuration", true) : "Whole configuration", make("pre", { class: "code", text: JSON.stringify(run.config, null, 2) })));
  });
  $("details").replaceChildren(...parts);
}

// What the model has drawn at each validation, the latest first. Only whole PNG files get here, as data URLs.
function imagesCard(run, steps, several) {
  const figure = (image) => {
    const picture = make("img", { src: image.src, alt: image.caption });
    picture.addEventListener("load", () => picture.classList.toggle("small", picture.naturalWidth < 160));
    return make("figure", {}, picture, make("figcaption", { text: image.caption }));
  };
  const rows = steps.flatMap(({ step, images }) => [make("h3", { text: `step ${grouped(step)}` }), make("div", { class: "drawn" }, ...images.filter((image) => image.src).map(figure))]);
  return make("article", { class: "card images", "data-images": run.name }, make("h2", { text: withName(run, "Images", several) }), ...rows);
}

// `lists` has the steps of each run. Pictures are large, so the section is built again only when there are others.
function buildImages(lists) {
  const runs = state.data.runs;
  $("images").replaceChildren(...runs.map((run, r) => [run, lists[r] || []]).filter(([, steps]) => steps.length > 0).map(([run, steps]) => imagesCard(run, steps, runs.length > 1)));
}

function show(data) {
  state.data = data;
  const names = data.runs.map((run) => run.name).join(", ");
  $("title").textContent = names || "Titanium";
  const percent = data.runs.length === 1 && data.runs[0].summary.total_steps > 0 ? `${Math.floor((100 * data.runs[0].summary.step) / data.runs[0].summary.total_steps)} % ` : "";
  document.title = `${percent}${names} – Titanium`;
  $("runs").replaceChildren(...data.runs.map(buildRun));
  buildPlots();
  buildDetails();
  if (!state.live) buildImages(data.runs.map((run) => run.images));
  $("footer").textContent = `${state.live ? "As of" : "Made by titanium report at"} ${clock(data.generated)}. Drag over a plot to zoom, double-click to see all. ▲ checkpoint, ┆ restart.`;
  document.body.dataset.ready = "true";
}

// --- a live page --------------------------------------------------------------------------------------------------------

// A zoomed plot in steps gets the points of its range alone, and so more of them.
async function fetchDetail() {
  if (!state.zoom || state.axis !== "step") { state.detail = null; return; }
  const [from, to] = state.zoom, answer = await fetch(`data.json?from=${Math.floor(from)}&to=${Math.ceil(to)}`);
  if (answer.ok && state.zoom && state.zoom[0] === from) state.detail = await answer.json();
}

async function fetchImages(data) {
  const drawn = JSON.stringify(data.runs.map((run) => run.images));
  if (drawn === state.drawn) return;
  const answer = await fetch("images.json");
  if (!answer.ok) return;
  buildImages(await answer.json());
  state.drawn = drawn;
}

async function refresh() {
  const badge = $("live");
  try {
    const answer = await fetch("data.json");
    if (!answer.ok) throw new Error(answer.status);
    const data = await answer.json();
    await fetchDetail();
    badge.textContent = "live";
    badge.classList.remove("lost");
    show(data);
    await fetchImages(data);
  } catch (error) {
    badge.textContent = "titanium watch does not answer";
    badge.classList.add("lost");
  }
  badge.hidden = false;
}

async function keepFresh() {
  await refresh();
  setTimeout(keepFresh, 3000);
}

// --- start --------------------------------------------------------------------------------------------------------------

function remembered(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

function remember(key, value) {
  try { localStorage.setItem(key, value); } catch { /* a page from a file may keep nothing */ }
}

function setTheme(theme) {
  root.dataset.theme = theme;
  drawAll();
}

function start() {
  const asked = new URLSearchParams(location.search).get("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(asked || remembered("titanium-theme") || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { if (!remembered("titanium-theme")) setTheme(dark.matches ? "dark" : "light"); });
  $("theme").addEventListener("click", () => {
    setTheme(root.dataset.theme === "dark" ? "light" : "dark");
    remember("titanium-theme", root.dataset.theme);
  });
  $("axis").addEventListener("change", () => { state.axis = $("axis").value; zoomTo(null); });
  $("smooth").addEventListener("input", () => {
    const share = Number($("smooth").value) / 100;
    state.smooth = share === 0 ? 0 : 1 - (1 - share) ** 2;  // finer where it matters, near one
    $("smooth-value").textContent = share === 0 ? "0" : state.smooth.toFixed(2).replace("1.00", "0.99");
    rebuildCurves();
  });
  $("reset").addEventListener("click", () => zoomTo(null));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && state.zoom) zoomTo(null); });
  new ResizeObserver(drawAll).observe(document.body);
  const data = JSON.parse($("data").textContent);
  if (data) return show(data);
  state.live = true;
  keepFresh();
}

window.addEventListener("error", (event) => { document.body.dataset.error = event.message; });
window.addEventListener("unhandledrejection", (event) => { document.body.dataset.error = String(event.reason); });
start();
