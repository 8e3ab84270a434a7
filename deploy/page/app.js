// The page at "/": a chat over POST /v1/chat/completions and the state of the server.
//
// GET /v1/troupe/state answers (every number is of now; rows and last_ms are of the last step that came back; tokens,
// steps.count and preemptions count from the start of the process):
//   {"model": "demo", "version": "0.1.0", "uptime_s": 12.5,
//    "device": {"name": "cpu", "kernel_set": "avx2", "threads": 2, "memory_bytes": 123},
//    "pages": {"used": 0, "total": 64}, "blocks": {"used": 0, "total": 512},
//    "queue": {"waiting": 0, "running": 0, "queue_max": 32, "sequences_max": 16},
//    "steps": {"count": 7, "last_rows": 3, "decode_rows": 2, "prompt_rows": 1, "last_ms": 4.2},
//    "tokens": {"prompt": 100, "generated": 50}, "preemptions": 0,
//    "progress": [{"actor": "device 0", "busy": false, "age_s": 1.5}]}
//
// Text of the model, of errors and of the state is only ever set as text, never as markup, and nothing here needs more
// than the Content-Security-Policy "default-src 'self'; style-src 'self'; script-src 'self'".
"use strict";

const kPollMs = 1000;
const kPollTimeoutMs = 4000;
const kTrail = 120;          // polls that a sparkline shows
const kStalledAfterS = 10;   // a busy actor that finished nothing for this long is shown as stalled
const kSettings = ["temperature", "max-tokens", "thinking", "system"];

const at = (id) => document.getElementById(id);
const svg = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
const element = (tag, className, text) => {
  const node = document.createElement(tag);
  node.className = className;
  node.textContent = text;
  return node;
};

const conversation = [];     // {role, content}: what the model has seen
let answering = null;        // AbortController of the answer that streams
let reachable = null;        // null: not known yet
let downSince = null;
let keyNeeded = false;
let modelName = null;

// --- talking to the server -----------------------------------------------------------------------

function headers(more = {}) {
  const key = sessionStorage.getItem("troupe-key");
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

async function errorOf(response) {
  try {
    const body = await response.json();
    return body.error?.message ?? `HTTP ${response.status}`;
  } catch {
    return `HTTP ${response.status}`;
  }
}

function setKeyNeeded(needed, note) {
  const wasFocused = keyNeeded;
  keyNeeded = needed;
  at("key-form").hidden = !needed;
  if (needed && note) at("key-note").textContent = note;
  if (needed && !wasFocused) at("key").focus();
  showLink();
}

function showLink() {
  const state = reachable === null ? "wait" : reachable ? "up" : "down";
  at("link").dataset.state = keyNeeded && reachable ? "wait" : state;
  at("link-text").textContent =
    keyNeeded && reachable ? "locked" : { wait: "connecting", up: "connected", down: "not reachable" }[state];
  document.body.classList.toggle("down", reachable === false);
  const banner = at("banner");
  banner.hidden = reachable !== false;
  const text = downSince ? `Server not reachable since ${downSince.toLocaleTimeString()}. Trying again …` : "";
  if (banner.textContent !== text) banner.textContent = text;
  const mayType = reachable === true && !keyNeeded;
  at("input").disabled = !mayType;
  at("send").disabled = !mayType;
}

function setReachable(now) {
  if (reachable === now) return;
  const inputHadFocus = document.activeElement === at("input") || document.activeElement === document.body;
  reachable = now;
  downSince = now ? null : new Date();
  showLink();
  if (now && inputHadFocus && !keyNeeded) at("input").focus();
}

// --- chat ----------------------------------------------------------------------------------------

function addTurn(role, text) {
  at("empty").hidden = true;
  const turn = element("article", `turn ${role}`, "");
  const meta = element("p", "meta", "");
  const body = element("div", "text", text);
  turn.append(element("p", "who", role === "user" ? "You" : modelName ?? "Model"), body, meta);
  at("log").append(turn);
  return { turn, body, meta };
}

function following(change) {  // keeps the end in view, unless the reader has scrolled up
  const log = at("log");
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
  change();
  if (atEnd) log.scrollTop = log.scrollHeight;
}

function chatBody() {
  const messages = [...conversation];
  const system = at("system").value.trim();
  if (system) messages.unshift({ role: "system", content: system });
  const body = { model: modelName, messages, stream: true, stream_options: { include_usage: true } };
  if (at("temperature").value !== "") body.temperature = Number(at("temperature").value);
  if (at("max-tokens").value !== "") body.max_completion_tokens = Number(at("max-tokens").value);
  if (at("thinking").value) body.chat_template_kwargs = { enable_thinking: at("thinking").value === "on" };
  return body;
}

async function* events(response) {  // the data of server-sent events; ends at [DONE]
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the stream broke off");
    rest += decoder.decode(value, { stream: true });
    const parts = rest.split(/\r?\n\r?\n/);
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trim()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

async function answer(view, signal) {  // {text, finish, usage, firstMs, totalMs}; fills view as it comes
  const begin = performance.now();
  const result = { text: "", finish: null, usage: null, firstMs: null, totalMs: 0 };
  view.result = result;
  const response = await fetch("v1/chat/completions", {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(chatBody()),
    signal,
  });
  if (!response.ok) {
    const error = new Error(await errorOf(response));
    error.status = response.status;
    throw error;
  }
  const text = document.createTextNode("");
  view.body.append(text);
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message ?? "the server reported an error");
    if (event.usage) result.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) continue;
    result.finish = choice.finish_reason ?? result.finish;
    const piece = choice.delta?.content;
    if (!piece) continue;
    result.firstMs ??= performance.now() - begin;
    result.text += piece;
    following(() => text.appendData(piece));
  }
  result.totalMs = performance.now() - begin;
  return result;
}

function describe(result) {
  const parts = [];
  const tokens = result.usage?.completion_tokens;
  if (tokens !== undefined) parts.push(`${tokens} tokens`);
  if (result.firstMs !== null) parts.push(`first after ${(result.firstMs / 1000).toFixed(2)} s`);
  const streamS = (result.totalMs - (result.firstMs ?? 0)) / 1000;
  if (tokens > 1 && streamS > 0) parts.push(`${((tokens - 1) / streamS).toFixed(1)} tokens/s`);
  if (result.finish === "length") parts.push("cut off at the token limit");
  return parts.join(" · ");
}

async function send() {
  const input = at("input");
  const text = input.value.trim();
  if (!text || answering || input.disabled) return;
  input.value = "";
  fitInput();
  addTurn("user", text);
  conversation.push({ role: "user", content: text });
  const view = addTurn("assistant", "");
  view.turn.classList.add("busy");
  at("log").scrollTop = at("log").scrollHeight;
  answering = new AbortController();
  showAnswering(true);
  try {
    const result = await answer(view, answering.signal);
    following(() => { view.meta.textContent = describe(result); });
  } catch (error) {
    following(() => failed(view, error));
  }
  if (view.turn.isConnected) finishTurn(view.result.text, text);  // else the chat was cleared meanwhile
  view.turn.classList.remove("busy");
  answering = null;
  showAnswering(false);
  if (document.activeElement === document.body && !input.disabled) input.focus();
}

function failed(view, error) {
  if (error.name === "AbortError") {
    view.meta.textContent = "stopped";
    return;
  }
  view.turn.classList.add("failed");
  view.meta.textContent = error instanceof TypeError ? "The connection to the server broke." : error.message;
  if (error.status === 401) setKeyNeeded(true, "The server did not accept the request without a valid key.");
  if (error.status === undefined) poll();
}

function finishTurn(answered, asked) {  // what the model did not answer is not part of the conversation
  if (answered) {
    conversation.push({ role: "assistant", content: answered });
    return;
  }
  conversation.pop();
  if (!at("input").value) at("input").value = asked;
  fitInput();
}

function showAnswering(on) {
  const hadFocus = [at("send"), at("stop")].includes(document.activeElement);
  at("log").setAttribute("aria-busy", String(on));  // read out when the answer is whole, not word by word
  at("send").hidden = on;
  at("stop").hidden = !on;
  if (hadFocus) (on ? at("stop") : at("input")).focus();
}

function clearChat() {
  answering?.abort();
  conversation.length = 0;
  for (const turn of at("log").querySelectorAll(".turn")) turn.remove();
  at("empty").hidden = false;
  at("input").focus();
}

function fitInput() {
  const input = at("input");
  input.rows = 1;
  while (input.rows < 8 && input.scrollHeight > input.clientHeight + 2) input.rows += 1;
}

// --- state ---------------------------------------------------------------------------------------

const trail = { rate: [], rows: [] };
let previous = null;         // {state, at}

function push(list, value) {
  list.push(value);
  if (list.length > kTrail) list.shift();
}

function drawLine(id, values) {
  const picture = at(id);
  const top = Math.max(1, ...values);
  const step = 120 / (kTrail - 1);
  const points = values.map((v, i) =>
    `${(120 - (values.length - 1 - i) * step).toFixed(2)},${(31 - (v / top) * 29).toFixed(2)}`);
  const first = points[0].split(",")[0];
  picture.replaceChildren(
    svg("polygon", { class: "area", points: `${first},32 ${points.join(" ")} 120,32` }),
    svg("polyline", { class: "edge", points: points.join(" ") }));
}

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; unit += 1) n /= 1024;
  return `${n.toFixed(unit && n < 100 ? 1 : 0)} ${units[unit]}`;
}

function ago(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} days`;
}

function row(name, value, className = "") {
  return [element("dt", "", name), element("dd", className, value)];
}

function share(name, used, total) {  // a row and a bar
  const bar = element("dd", "bar", "");
  const picture = svg("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(svg("rect", { width: total > 0 ? Math.min(100, (100 * used) / total) : 0, height: 1 }));
  bar.append(picture);
  return [...row(name, `${used} of ${total}`), bar];
}

function showState(state) {
  const now = performance.now();
  modelName = state.model;
  at("model").textContent = `${state.model} · version ${state.version} · up ${ago(state.uptime_s)}`;

  let rate = 0;
  let promptRate = 0;
  let rows = 0;
  if (previous && state.tokens.generated >= previous.state.tokens.generated) {
    const seconds = (now - previous.at) / 1000;
    rate = (state.tokens.generated - previous.state.tokens.generated) / seconds;
    promptRate = (state.tokens.prompt - previous.state.tokens.prompt) / seconds;
    if (state.steps.count !== previous.state.steps.count) rows = state.steps.last_rows;
  }
  previous = { state, at: now };
  push(trail.rate, rate);
  push(trail.rows, rows);
  drawLine("rate-line", trail.rate);
  drawLine("rows-line", trail.rows);
  at("rate").textContent = rate.toFixed(rate < 10 && rate > 0 ? 1 : 0);
  at("rate-note").textContent = `generated · ${promptRate.toFixed(0)} prompt · ${state.tokens.generated} in all`;
  at("rows").textContent = String(rows);
  at("rows-note").textContent = rows
    ? `${state.steps.decode_rows} decode, ${state.steps.prompt_rows} prompt · ${state.steps.last_ms.toFixed(1)} ms`
    : `idle · ${state.steps.count} steps in all`;

  at("queue").replaceChildren(
    ...share("running", state.queue.running, state.queue.sequences_max),
    ...share("waiting", state.queue.waiting, state.queue.queue_max),
    ...row("preemptions", String(state.preemptions)));
  at("pools").replaceChildren(
    ...share("state pages", state.pages.used, state.pages.total),
    ...share("KV blocks", state.blocks.used, state.blocks.total));
  at("device").replaceChildren(
    ...row("name", state.device.name),
    ...row("kernels", state.device.kernel_set),
    ...row("threads", String(state.device.threads)),
    ...row("memory", bytes(state.device.memory_bytes)));
  at("actors").replaceChildren(...state.progress.flatMap(({ actor, busy, age_s }) =>
    busy && age_s > kStalledAfterS
      ? row(actor, `stalled for ${ago(age_s)}`, "stalled")
      : row(actor, `${busy ? "busy" : "idle"}, ${ago(age_s)}`)));
}

let polling = false;

async function poll() {
  if (polling) return;
  polling = true;
  try {
    const response = await fetch("v1/troupe/state", {
      headers: headers(),
      cache: "no-store",
      signal: AbortSignal.timeout(kPollTimeoutMs),
    });
    if (response.status === 401) {
      const tried = sessionStorage.getItem("troupe-key") !== null;
      at("model").textContent = "";
      setKeyNeeded(true, tried ? "The server refused that key." : "");
    } else {
      if (!response.ok) throw new Error(await errorOf(response));
      const state = await response.json();
      setKeyNeeded(false);
      showState(state);
    }
    setReachable(true);
  } catch {
    previous = null;
    setReachable(false);
  }
  polling = false;
}

// --- start ---------------------------------------------------------------------------------------

at("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
at("input").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
at("input").addEventListener("input", fitInput);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") answering?.abort();
});
at("stop").addEventListener("click", () => answering?.abort());
at("clear").addEventListener("click", clearChat);
at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("troupe-key", at("key").value);
  at("key").value = "";
  poll();
});
for (const id of kSettings) {
  at(id).value = sessionStorage.getItem(`troupe-${id}`) ?? "";
  at(id).addEventListener("change", () => sessionStorage.setItem(`troupe-${id}`, at(id).value));
}

showLink();
poll();
setInterval(() => {
  if (!document.hidden) poll();
}, kPollMs);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) poll();
});
