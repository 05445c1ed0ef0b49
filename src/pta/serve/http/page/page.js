// The page of `pta serve`: watches one stream by server-sent events, and asks before it changes one.

const SHOWN = 20; // rows of a long table
const SPAN = 600; // seconds of the curves
const STALE = 7000; // milliseconds without an event after which the summary is asked for
const CAN_BE_LIFTED = new Set(["reset", "rewind", "unlearn", "import", "label"]);

const $ = (id) => document.getElementById(id);
const watch = $("watch");
let summary = null; // of the stream shown
let events = null; // its EventSource
let heard = 0; // when the last summary came
let points = []; // what the curves show, one per second
let allHistory = false;
let chosen = null; // sequence number to rewind to; null is now

// -- texts ------------------------------------------------------------------------------------------------------------

const known = (value) => value !== null && value !== undefined;
const count = (value) => (known(value) ? value.toLocaleString("en") : "–");
const weight = (value) => (known(value) ? value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 }) : "–");
const decimal = (value, digits) => (known(value) ? value.toFixed(digits) : "–");
const share = (value) => (known(value) ? `${(100 * value).toFixed(1)}\u00a0%` : "–");
const milliseconds = (value) => (known(value) ? `${value.toFixed(value < 10 ? 1 : 0)}\u00a0ms` : "–");
const samples = (number) => `${count(number)} ${number === 1 ? "sample" : "samples"}`;

function when(seconds) {
  if (!known(seconds)) return "–";
  const date = new Date(1000 * seconds);
  const today = date.toDateString() === new Date().toDateString();
  return today ? date.toLocaleTimeString() : date.toLocaleString();
}

function described({ kind, argument }) {
  const given = argument || {};
  if (kind === "rewind") return `Rewind to ${count(given.to)}`;
  if (kind === "unlearn") return `${given.erase ? "Erase" : "Un-learn"} ${given.source}`;
  if (kind === "answers") return `Answers: ${given.answers}`;
  if (kind === "corrected") return "Labels learned";
  if (kind === "reset" && given.classes) return `Reset ${given.classes.map((number) => summary.classes[number].name).join(", ")}`;
  return kind[0].toUpperCase() + kind.slice(1);
}

const corrections = ({ waiting, replayed, of }) => (waiting ? ` ${count(waiting)} labels wait: ${count(replayed)} of ${samples(of)} replayed.` : "");

const lifted = (entry) => CAN_BE_LIFTED.has(entry.kind) && !entry.in_force;

function show(id, text) {
  const element = $(id);
  if (element.textContent !== text) element.textContent = text;
}

// -- requests ---------------------------------------------------------------------------------------------------------

class Refused extends Error {}

async function ask(path, body) {
  const change = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  const headers = body === undefined ? {} : { "Content-Type": "application/json", "X-PTA": "1" };
  let answer;
  try {
    answer = await fetch(path, { ...change, headers, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Refused("The service does not answer.");
  }
  const told = await answer.json().catch(() => ({}));
  if (answer.status === 401 && path !== "login") signIn();
  if (!answer.ok) throw new Refused(told.error || `The service answered ${answer.status}.`);
  return told;
}

const route = (rest = "") => `streams/${encodeURIComponent(summary.name)}${rest}`;

function notice(text) {
  show("notice", text);
  $("notice").hidden = false;
  clearTimeout(notice.timer);
  notice.timer = setTimeout(() => ($("notice").hidden = true), 8000);
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function drawn(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function cell(row, kind, text) {
  const element = row.appendChild(document.createElement(kind));
  if (text) element.textContent = text;
  return element;
}

function button(row, text, label, act) {
  const element = cell(cell(row, "td"), "button", text);
  element.setAttribute("aria-label", label);
  element.addEventListener("click", act);
  return element;
}

function bars(row, ...names) {
  const way = cell(row, "td");
  way.className = "way";
  way.setAttribute("aria-hidden", "true");
  return names.map((name) => way.appendChild(drawn("svg", { class: "bar" })).appendChild(drawn("rect", { class: name, height: "100%" })));
}

const fill = (bar, part, whole) => bar.setAttribute("width", `${whole > 0 ? (100 * part) / whole : 0}%`);

// Rows are made once and kept, so that the row in use keeps the keyboard's focus while figures move.
// The largest value fills a bar.
function rows(table, items, key, largest, make) {
  const body = table.tBodies[0];
  const old = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const focused = document.activeElement;
  items.forEach((item, index) => {
    const name = key(item);
    let row = old.get(name);
    old.delete(name);
    if (!row) {
      row = document.createElement("tr");
      row.dataset.key = name;
      row.update = make(row, item);
    }
    if (body.rows[index] !== row) body.insertBefore(row, body.rows[index] || null);
    row.update(item, largest);
  });
  for (const row of old.values()) row.remove();
  if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

// One line per value, from the left edge (SPAN seconds ago, or the first point) to now.
function curves(svg, lines, top) {
  const from = Math.max(points[0].at, points[points.length - 1].at - SPAN);
  const length = Math.max(points[points.length - 1].at - from, 1);
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(
    ...lines.map(([name, value]) => {
      const seen = points.filter((point) => point.at >= from && known(value(point)));
      const place = (point) => `${(100 * (point.at - from)) / length},${100 - (96 * value(point)) / top - 2}`;
      return drawn("polyline", { class: name, points: seen.map(place).join(" ") });
    }),
  );
}

function spark(id, value) {
  curves($(id), [["adapted", value]], Math.max(...points.map((point) => value(point) || 0)) || 1);
}

// -- the stream -------------------------------------------------------------------------------------------------------

function remember() {
  const at = performance.now() / 1000;
  if (points.length > 1 && at - points[points.length - 2].at < 1) points.pop();
  points.push({
    at,
    rate: summary.rate,
    latency: summary.latency_ms.p50,
    changed: summary.changed["1000"],
    position: summary.position,
    adapted: summary.entropy.adapted,
    zeroShot: summary.entropy.zero_shot,
    mean: summary.mean_prediction_entropy,
  });
  points = points.filter((point) => point.at > at - SPAN);
}

function render() {
  show("name", summary.name);
  document.title = `${summary.name} · pta serve`;
  const learning = summary.read_only ? `Read-only: it answers and learns nothing. ${summary.read_only}.` : summary.frozen ? "Frozen: it answers and learns nothing." : "Learning.";
  const answers = summary.answers === "zero-shot" ? " Zero-shot's answers are given." : "";
  show("state", `${learning}${answers}${corrections(summary.corrections)} Sequence ${count(summary.sequence)}, last change ${when(summary.time)}.`);
  show("freeze", summary.frozen ? "Thaw…" : "Freeze…");
  show("rate", decimal(summary.rate, 1));
  show("p50", milliseconds(summary.latency_ms.p50));
  show("p99", milliseconds(summary.latency_ms.p99));
  show("changed", share(summary.changed["1000"]));
  show("position", count(summary.position));
  show("learned", count(summary.learned));
  show("answered", count(summary.answered));
  for (const last of ["100", "1000", "all"]) show(`changed-${last}`, share(summary.changed[last]));
  spark("rate-line", (point) => point.rate);
  spark("latency-line", (point) => point.latency);
  spark("changed-line", (point) => point.changed);
  spark("position-line", (point) => point.position);
  renderEntropy();
  renderHealth();
  renderClasses();
  renderSources();
  renderHistory();
}

function renderEntropy() {
  const top = Math.log(Math.max(summary.classes.length, 2));
  show("entropy-adapted", decimal(summary.entropy.adapted, 3));
  show("entropy-zero-shot", decimal(summary.entropy.zero_shot, 3));
  show("entropy-mean", decimal(summary.mean_prediction_entropy, 3));
  show("log-classes", top.toFixed(2));
  curves($("entropy"), [["zero-shot", (point) => point.zeroShot], ["mean", (point) => point.mean], ["adapted", (point) => point.adapted]], top);
}

// `range` is from bottom to top; without it, what the values and the band need.
function healthCurve(id, value, { range, band, level }) {
  const { series, alarm_rows: alarms, position } = summary.health;
  const first = series.length ? series[0].position : 0;
  const length = Math.max(series.length ? series[series.length - 1].position - first : 0, 1);
  const all = [...series.map(value), ...(band ?? [])];
  const [low, high] = range ?? [Math.min(...all) - 0.002, Math.max(...all) + 0.002];
  const x = (at) => (100 * (at - first)) / length;
  const y = (number) => 72 - (68 * (Math.min(Math.max(number, low), high) - low)) / (high - low);
  const marks = alarms.filter((one) => one.raised && one.position >= first && one.position <= position).map((one) => {
    const at = Math.min(Math.max(x(one.position), 3), 97);
    const mark = drawn("polygon", { class: "alarm", points: `${at - 3},100 ${at + 3},100 ${at},76` });
    const together = alarms.filter((other) => other.raised && other.position === one.position);
    mark.appendChild(drawn("title", {})).textContent = [...new Set(together.map(says))].join("\n");
    return mark;
  });
  const svg = $(id);
  svg.setAttribute("viewBox", "0 0 100 100");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-label", `Over ${samples(length)}; alarms: ${marks.map((one) => one.textContent).join(" ") || "none"}`);
  svg.replaceChildren(
    ...(band ? [drawn("rect", { class: "band", width: 100, y: y(band[1]), height: y(band[0]) - y(band[1]) })] : []),
    ...(known(level) ? [drawn("polyline", { class: "zero-shot", points: `0,${y(level)} 100,${y(level)}` })] : []),
    drawn("polyline", { class: "adapted", points: series.map((one) => `${x(one.position)},${y(value(one))}`).join(" ") }),
    ...marks,
  );
}

const says = ({ kind, sentence }) => `${kind}, ${sentence}.`;

// The sequence number before the row with which an alarm was raised; later rows of it tell of another reaction.
function before(alarm) {
  const rose = summary.health.alarm_rows.find((row) => row.raised && row.kind === alarm.kind && row.position === alarm.position);
  return (rose ?? alarm).sequence - 1;
}

function renderAlarms({ alarms, reference, foreign_input_is_testable: isTested }) {
  show("alarms", alarms.length ? `${count(alarms.length)} ${alarms.length === 1 ? "alarm stands" : "alarms stand"}.` : "No alarm stands.");
  show("untested", isTested ? "" : `foreign-input: ${reference ? "cannot be tested while samples come sorted by class" : "no reference yet; the first 500 learned samples become it"}.`);
  rows($("standing"), alarms, (one) => `${summary.name} ${one.kind} ${before(one)}`, 0, (row, alarm) => {
    const text = cell(row, "th");
    text.scope = "row";
    cell(text, "b", alarm.kind);
    const sentence = text.appendChild(new Text());
    const { source } = alarm.numbers;
    const offered = [
      ["Answer with zero-shot…", "answers", { answers: "zero-shot" }, () => summary.answers === "zero-shot"],
      ["Freeze…", "freeze", {}, () => summary.frozen],
      ["Rewind to before it…", "rewind", { sequence: before(alarm) }, () => before(alarm) < summary.oldest.sequence],
      ...(source ? [[`Un-learn ${source}…`, "unlearn", { source }, () => false]] : []),
    ].filter(() => alarm.kind !== "silent");
    const buttons = offered.map(([verb, operation, body]) => button(row, verb, `${alarm.kind}: ${verb}`, () => change(operation, body)));
    return (now) => {
      sentence.data = `, ${now.sentence}.${now.reaction === "note" ? "" : ` Reaction: ${now.reaction}.`}`;
      buttons.forEach((one, i) => (one.disabled = offered[i][3]()));
    };
  });
}

const FIGURES = [
  ["confidence", "zero_shot_confidence", share, {}],
  ["cosine", "top_cosine", (value) => decimal(value, 3), {}],
  ["changed", "changed", share, { range: [0, 1] }],
  ["ratio", "answer_entropy_ratio", (value) => decimal(value, 2), { range: [0, 2], level: 1 }],
  ["order", "order", (value) => decimal(value, 2), { range: [0, 4], level: 1 }],
];

function renderHealth() {
  const { health } = summary;
  renderAlarms(health);
  for (const [id, name, written, options] of FIGURES) {
    const band = health.reference_bands?.[name];
    show(`health-${id}`, health.position >= 64 ? written(health[name]) : "–");
    if ($(`${id}-band`)) show(`${id}-band`, band ? `; reference ${written(band[0])} to ${written(band[1])}` : "");
    healthCurve(`${id}-curve`, (one) => one[name], { ...options, band });
  }
  show("shadow", summary.answers === "zero-shot" ? "Answer with adaptation…" : "Answer with zero-shot…");
  const last = [...health.last_answers].reverse().map((one, number) => ({ ...one, number }));
  rows($("last-answers"), last, (one) => String(one.number), 0, (row) => {
    const figures = ["th", "td", "td", "td"].map((kind) => cell(row, kind));
    figures[0].scope = "row";
    return (one) => [one.label, share(one.probability), one.zero_shot_label, share(one.zero_shot_probability)].forEach((text, i) => (figures[i].textContent = text));
  });
  $("last-answers").hidden = !last.length;
}

function renderClasses() {
  const wanted = $("search").value.trim().toLowerCase();
  const weighted = known(summary.classes[0].weight);
  const [kind, written] = weighted ? ["weight", weight] : ["touches", count];
  document.querySelectorAll(".learned").forEach((one) => (one.textContent = kind));
  if (weighted) show("learned-says", "The sum of the weights of the samples in force that a class has learned from");
  const found = summary.classes.filter((one) => one.name.toLowerCase().includes(wanted));
  const shown = found.sort((a, b) => b[kind] - a[kind] || b.answers - a.answers).slice(0, SHOWN);
  const most = summary.classes.reduce((high, one) => Math.max(high, one[kind], one.answers), 0);
  rows($("classes"), shown, (one) => one.name, most, (row, { name }) => {
    cell(row, "th", name).scope = "row";
    const [learned, answers] = bars(row, "touches", "answers");
    const figures = [0, 1, 2].map(() => cell(row, "td"));
    return (one, largest) => {
      fill(learned, one[kind], largest);
      fill(answers, one.answers, largest);
      [written(one[kind]), count(one.answers), decimal(one.cosine, 3)].forEach((text, i) => (figures[i].textContent = text));
    };
  });
  const rest = found.length - shown.length;
  show("more-classes", wanted && !found.length ? "No class has this in its name." : rest ? `${count(rest)} more with ${weighted ? "less weight" : "fewer touches"}. Search for a name to see others.` : "");
}

function renderSources() {
  const most = Math.max(0, ...summary.sources.map((one) => one.samples));
  rows($("sources"), summary.sources, (one) => JSON.stringify(one.source), most, (row, { source }) => {
    cell(row, "th", known(source) ? source : "no source named").scope = "row";
    const [bar] = bars(row, "touches");
    const figure = cell(row, "td");
    if (known(source)) button(row, "Un-learn…", `Un-learn ${source}…`, () => change("unlearn", { source }));
    else cell(row, "td");
    return (one, largest) => {
      fill(bar, one.samples, largest);
      figure.textContent = count(one.samples);
    };
  });
  $("sources").hidden = !summary.sources.length;
  $("no-sources").hidden = summary.sources.length > 0;
}

function renderHistory() {
  const first = summary.oldest.sequence;
  const last = Math.max(summary.sequence, first);
  const newestFirst = [...summary.timeline].sort((a, b) => b.sequence - a.sequence || (a.kind === "snapshot") - (b.kind === "snapshot"));
  const marks = newestFirst.map((entry) => {
    const x = last > first ? (100 * (entry.sequence - first)) / (last - first) : 100;
    if (entry.kind === "snapshot") return drawn("circle", { class: "snapshot", cx: `${x}%`, cy: "50%", r: 4 });
    return drawn("rect", { class: lifted(entry) ? "operation lifted" : "operation", x: `${x}%`, y: "50%", width: 8, height: 8, transform: "translate(-4 -4)" });
  });
  $("timeline").replaceChildren(drawn("line", { x2: "100%", y1: "50%", y2: "50%" }), ...marks.reverse());
  show("oldest", count(first));
  show("newest", `${count(last)}, now`);
  for (const input of [$("moment"), $("sequence")]) {
    input.min = first;
    input.max = last;
    if (chosen === null && input !== document.activeElement) input.value = last;
  }
  $("rewind").disabled = chosen === null || chosen >= last;
  const shown = allHistory ? newestFirst : newestFirst.slice(0, SHOWN);
  rows($("history"), shown, (entry) => `${entry.kind} ${entry.sequence}`, 0, (row, entry) => {
    const what = cell(row, "th", described(entry));
    what.scope = "row";
    const figures = [0, 1, 2].map(() => cell(row, "td"));
    const label = `Rewind here: sequence ${count(entry.sequence)}, ${described(entry)}`;
    const rewind = button(row, "Rewind here…", label, () => change("rewind", { sequence: entry.sequence }));
    return (now) => {
      row.classList.toggle("lifted", lifted(now));
      what.textContent = described(now) + (lifted(now) ? " (lifted)" : "");
      [when(now.time), count(now.sequence), now.samples ? count(now.samples) : ""].forEach((text, i) => (figures[i].textContent = text));
      rewind.disabled = now.sequence >= summary.sequence || now.sequence < summary.oldest.sequence;
    };
  });
  $("all-history").hidden = allHistory || newestFirst.length <= SHOWN;
  show("all-history", `Show all ${count(newestFirst.length)}`);
}

function hear(now) {
  heard = performance.now();
  summary = { ...summary, ...now };
  remember();
  render();
}

// A value with what changed of it: an object of members, or of a list {drop, set, add}.
function patched(old, patch) {
  if (!(patch instanceof Object) || !(old instanceof Object) || Array.isArray(patch)) return patch;
  const rows = Array.isArray(old);
  const now = rows ? old.slice(patch.drop) : { ...old };
  for (const [name, change] of Object.entries(rows ? patch.set : patch)) now[name] = patched(now[name], change);
  return rows ? now.concat(patch.add) : now;
}

function open(name) {
  if (events) events.close();
  summary = { name };
  points = [];
  chosen = null;
  allHistory = false;
  show("connection", "connecting");
  const opened = new EventSource(route("/events"));
  opened.onopen = () => show("connection", "live");
  opened.onerror = () => show("connection", "connection lost; trying again");
  let told = null; // the summary as events tell it, which patches apply to
  const take = (now) => opened === events && hear((told = now));
  opened.onmessage = (event) => take(JSON.parse(event.data));
  opened.addEventListener("patch", (event) => take(patched(told, JSON.parse(event.data))));
  opened.addEventListener("gone", () => opened === events && begin());
  events = opened;
}

// What no event tells: that nothing comes any more, that a stream is new, that the login has ended.
async function refresh() {
  if (!events || document.hidden) return;
  const name = summary.name;
  try {
    await list();
    if (performance.now() - heard < STALE) return;
    const told = await ask(route());
    if (name !== summary.name) return;
    hear(told);
    if (events.readyState === EventSource.CLOSED) open(name);
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    show("connection", error.message);
  }
}

async function list() {
  const told = await ask("streams");
  const names = told.streams.map((stream) => stream.name);
  const choice = $("streams");
  if (names.join("\n") !== [...choice.options].map((option) => option.value).join("\n")) {
    const before = choice.value;
    choice.replaceChildren(...names.map((name) => new Option(name, name)));
    choice.value = names.includes(before) ? before : names.includes("default") ? "default" : names[0];
  }
  return choice.value;
}

// -- changes ----------------------------------------------------------------------------------------------------------

const QUESTIONS = {
  freeze: () => ["Freeze", "It goes on answering and learns nothing until it is thawed."],
  thaw: () => ["Thaw", "It learns again from the next request on."],
  undo: () => ["Undo", "The last reset, rewind, un-learning, label or import in force is lifted. Samples learned since then stay."],
  rewind: ({ sequence }) => ["Rewind", `It goes back to sequence ${count(sequence)}. What was learned later is no longer in force. Undo brings it back.`],
  answers: ({ answers }) => [`Answer with ${answers}`, "Learning goes on. An alarm that is reacted to with zero-shot still is."],
  unlearn: ({ source }) => ["Un-learn", `The state becomes as if ${source} had never sent a sample. What it sends from now on is learned. Undo brings its samples back.`],
};

async function change(operation, body = {}) {
  const name = summary.name;
  const [verb, consequence] = QUESTIONS[operation](body);
  try {
    const counted = await ask(route(`/${operation}?dry_run=true`), body);
    const object = { unlearn: `${body.source} in ${name}`, answers: `in ${name}` }[operation] ?? name;
    if (!(await agreed(`${verb} ${object}?`, `${consequence} ${counted.warning ?? ""}`, `${samples(counted.samples)} concerned.`, verb))) return;
    const done = await ask(`streams/${encodeURIComponent(name)}/${operation}`, body);
    chosen = null;
    notice(`${verb}: done, ${samples(done.samples)} concerned.`);
    if (name === summary.name) hear(await ask(route()));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    notice(error.message);
  }
}

function agreed(question, consequence, concerned, verb) {
  show("question", question);
  show("consequence", consequence);
  show("concerned", concerned);
  show("agreed", verb);
  const dialog = $("confirm");
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "agreed"), { once: true }));
}

// -- login ------------------------------------------------------------------------------------------------------------

function signIn() {
  if (events) events.close();
  events = null;
  watch.hidden = true;
  $("login").hidden = false;
  $("token").focus();
}

async function enter(token) {
  const complaint = $("login").querySelector("[role=alert]");
  complaint.textContent = "";
  try {
    await ask("login", { token });
    $("token").value = "";
    await begin();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    signIn();
    complaint.textContent = error.message;
  }
}

async function begin() {
  const name = await list();
  $("login").hidden = true;
  watch.hidden = false;
  open(name);
}

function choose(input, other) {
  chosen = input.value === "" ? null : Math.min(Math.max(Number(input.value), Number(input.min)), Number(input.max));
  other.value = chosen === null ? input.max : chosen;
  $("rewind").disabled = chosen === null || chosen >= summary.sequence;
}

$("login").querySelector("form").addEventListener("submit", (event) => {
  event.preventDefault();
  enter($("token").value.trim());
});
$("streams").addEventListener("change", () => open($("streams").value));
$("freeze").addEventListener("click", () => change(summary.frozen ? "thaw" : "freeze"));
$("shadow").addEventListener("click", () => change("answers", { answers: summary.answers === "zero-shot" ? "adapted" : "zero-shot" }));
$("undo").addEventListener("click", () => change("undo"));
$("rewind").addEventListener("click", () => change("rewind", { sequence: chosen }));
$("moment").addEventListener("input", () => choose($("moment"), $("sequence")));
$("sequence").addEventListener("input", () => choose($("sequence"), $("moment")));
$("search").addEventListener("input", renderClasses);
$("all-history").addEventListener("click", () => {
  allHistory = true;
  renderHistory();
});
setInterval(refresh, 2000);

// The token of a login link stands behind #, which a browser does not send; it is taken out of the address at once.
const fragment = new URLSearchParams(location.hash.slice(1)).get("token");
if (fragment) {
  history.replaceState(null, "", location.pathname + location.search);
  enter(fragment);
} else {
  begin().catch((error) => $("login").hidden && notice(error.message));
}
