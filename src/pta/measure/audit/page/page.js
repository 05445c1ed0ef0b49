"use strict";

const element = (id) => document.getElementById(id);
const KEYS = {1: "first", 2: "second", b: "both", n: "neither", "?": "cannot tell", z: "back", Backspace: "back", s: "stop"};
let state = null, busy = true;

function setBusy(now) {
  busy = now;
  for (const button of document.querySelectorAll("[data-said]"))
    button.disabled = now || (button.dataset.said === "back" && state.labels === 0);
}

function shown(text, tag) {
  const made = document.createElement(tag);
  made.textContent = text;
  return made;
}

async function showPicture(number) {
  const image = element("picture"), name = element("name");
  image.hidden = name.hidden = true;
  const reply = await fetch(`picture/${number}`), content = await reply.blob();
  if (content.type === "image/jpeg") {
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(content);
    image.alt = `Picture ${number}`;
    await image.decode();
    image.hidden = false;
  } else {
    name.textContent = await content.text();
    name.hidden = false;
  }
}

async function show(next) {
  state = next;
  element("draw").hidden = Boolean(state.verdict);
  element("end").hidden = !state.verdict;
  if (state.verdict) {
    const [verdict, ...more] = state.verdict;
    element("progress").textContent = "The audit is over. You can close this page.";
    element("end").replaceChildren(shown(verdict, "h1"), ...more.map((one) => shown(one, "p")));
    return;
  }
  setBusy(true);
  element("progress").textContent = `${state.labels} labelled, at most ${state.most}`;
  [element("first").textContent, element("second").textContent] = state.answers;
  await showPicture(state.number);
  setBusy(false);
}

async function ask(route, options) {
  try {
    const reply = await fetch(route, options);
    if (reply.ok) return await show(await reply.json());
    element("progress").textContent = await reply.text();
    setBusy(false);
  } catch {
    element("progress").textContent = "pta does not answer any more. What you said is kept: run the command again to go on.";
  }
}

function say(said, label = "") {
  if (busy || state.verdict || (said === "back" && state.labels === 0)) return;
  setBusy(true);
  ask("answer", {method: "POST", body: JSON.stringify({number: state.number, said, label})});
}

function askWhich() {
  if (busy || state.verdict) return;
  const option = (value, text) => Object.assign(shown(text, "option"), {value});
  const classes = state.others.map((name) => option(name, name));
  element("label").replaceChildren(option("", "I do not say"), option("none", "none of the classes"), ...classes);
  element("which").showModal();
  element("label").focus();
}

function answerNeither() {
  element("which").close();
  say("neither", element("label").value);
}

function choose(said) {
  if (said === "neither") askWhich();
  else say(said);
}

for (const button of document.querySelectorAll("[data-said]"))
  button.addEventListener("click", () => choose(button.dataset.said));
element("agreed").addEventListener("click", answerNeither);
element("cancelled").addEventListener("click", () => element("which").close());
element("label").addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    event.preventDefault();
    answerNeither();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || element("which").open) return;
  const said = KEYS[event.key] ?? KEYS[event.key.toLowerCase()];
  if (!said) return;
  event.preventDefault();
  choose(said);
});
ask("state");
