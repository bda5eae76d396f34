// The log of a task: a window of parts around what one looks at. Parts are fetched as one scrolls, and those
// far away are dropped, so that the page has the same size whatever the length of the log. What one looks at
// stays where it is. The end is followed while one looks at it.
//
// f follows the end, e goes to the next failure. A link with data-to-log leads to a place in the log: its
// address is that of the part, its fragment the event.
(() => {
  "use strict";

  const MOST = 6; // parts in the page
  const PART = 100; // entries that one part takes at the end, before another begins
  const TYPING = "textarea, select, [contenteditable], input:not([type=radio], [type=checkbox])";
  const LOST = "The log could not be loaded. Try again.";
  const NONE = "No entries of this kind.";
  const NEAR = 800; // pixels from an edge at which the next part is fetched

  const box = document.getElementById("log-box");
  if (!box) return;
  const byId = (id) => document.getElementById(id);
  const address = new URL(box.dataset.address, location.href);
  const state = { only: "all", following: true, below: 0, fetching: false, place: null };

  const parts = () => [...box.querySelectorAll(":scope > ol.part")];
  const goesOn = () => parts().at(-1)?.dataset.later === "yes";
  const atEnd = () => !goesOn() && box.scrollHeight - box.scrollTop - box.clientHeight < 24;
  const toEnd = () => { box.scrollTop = box.scrollHeight; };
  const topOf = (element) => element.getBoundingClientRect().top;

  // One thing after the other: two fetches at once would put a part in twice.
  let queue = Promise.resolve();
  const inTurn = (job) => (queue = queue.then(job).then(reached, () => say(LOST)));

  function reached() {
    if (byId("log-said").textContent === LOST) say("");
  }

  function say(text) { byId("log-said").textContent = text; }

  // ---- fetching ----

  async function fetchText(where) {
    const answer = await fetch(where, { headers: { "HX-Request": "true" } });
    if (answer.redirected) { location.reload(); return ""; } // the login ended
    if (!answer.ok) throw new Error(`${answer.status} for ${where}`);
    return answer.status === 204 ? "" : answer.text();
  }

  async function fetchPart(wanted) {
    const where = new URL(address);
    for (const [name, value] of Object.entries(wanted)) where.searchParams.set(name, value);
    if (state.only !== "all") where.searchParams.set("only", state.only);
    return partIn(await fetchText(where));
  }

  function partIn(text) {
    const made = document.createElement("template");
    made.innerHTML = text;
    return made.content.querySelector("ol.part");
  }

  // ---- putting parts in and taking them out ----

  function firstSeen() {
    const edge = topOf(box);
    const part = parts().find((one) => one.getBoundingClientRect().bottom > edge);
    return part && [...part.children].find((one) => one.getBoundingClientRect().bottom > edge);
  }

  function inPlace(change) {
    const seen = firstSeen();
    const before = seen && topOf(seen);
    change();
    if (seen?.isConnected) box.scrollTop += topOf(seen) - before;
  }

  function dropFirst() {
    while (parts().length > MOST) {
      parts()[0].remove();
      parts()[0].dataset.earlier = "yes";
    }
  }

  function dropLast() {
    while (parts().length > MOST) {
      parts().at(-1).remove();
      parts().at(-1).dataset.later = "yes";
    }
  }

  // A result may come in another part than its call.
  function joinResults() {
    for (const result of box.querySelectorAll("[data-result-of]")) {
      const call = box.querySelector(`[data-call="${CSS.escape(result.dataset.resultOf)}"]`);
      if (!call) continue;
      const place = document.createElement("div");
      place.append(...result.querySelector(".entry-body").childNodes);
      call.querySelector(".results").append(place);
      if (result.dataset.cameOut && (call.querySelector("details .results") || "tells" in result.dataset)) {
        call.querySelector(".came-out").textContent = result.dataset.cameOut;
      }
      call.classList.toggle("entry-failed", call.matches(".entry-failed") || result.matches(".entry-failed"));
      place.id = result.id;
      result.remove();
    }
  }

  function settle() {
    joinResults();
    const first = parts()[0];
    const earlier = byId("log-earlier");
    earlier.hidden = first?.dataset.earlier !== "yes";
    earlier.querySelector("a").href = `${address.pathname}?before=${first?.dataset.first || 0}&only=${state.only}`;
    showState();
  }

  function replaceAll(part) {
    for (const old of parts()) old.remove();
    byId("log-earlier").after(part);
    settle();
  }

  function append(part) {
    const last = parts().at(-1);
    if (last.children.length + part.children.length <= PART) {
      last.append(...part.children);
      last.dataset.last = part.dataset.last;
      if (part.dataset.later) last.dataset.later = "yes"; else delete last.dataset.later;
      last.dataset.label ||= part.dataset.label || "";
    } else {
      delete last.dataset.later;
      last.after(part);
    }
  }

  // ---- scrolling ----

  async function earlier() {
    const first = parts()[0];
    if (first?.dataset.earlier !== "yes") return;
    const part = await fetchPart({ before: first.dataset.first });
    if (!part) return;
    inPlace(() => { first.before(part); dropLast(); settle(); });
  }

  async function later() {
    if (!goesOn()) return;
    const part = await fetchPart({ after: parts().at(-1).dataset.last });
    inPlace(() => {
      if (part) append(part); else delete parts().at(-1).dataset.later;
      dropFirst();
      settle();
    });
  }

  function fetchNear() {
    if (state.fetching) return;
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    const job = box.scrollTop < NEAR && parts()[0]?.dataset.earlier ? earlier : left < NEAR && goesOn() ? later : null;
    if (!job) return;
    state.fetching = true;
    inTurn(job).finally(() => {
      state.fetching = false;
      requestAnimationFrame(fetchNear);
    });
  }

  function showWhere() {
    const edge = topOf(box);
    const part = parts().find((one) => one.getBoundingClientRect().bottom > edge);
    const begun = part && [...part.querySelectorAll(".run-start")].filter((one) => topOf(one) <= edge).at(-1);
    const words = (begun || part)?.dataset.label || "";
    const where = byId("log-where");
    if (where.textContent !== words) where.textContent = words;
    where.hidden = !words || box.scrollTop < 8;
  }

  let drawn = false;
  box.addEventListener("scroll", () => {
    if (drawn) return;
    drawn = true;
    requestAnimationFrame(() => {
      drawn = false;
      if (state.following !== atEnd()) { state.following = atEnd(); if (state.following) state.below = 0; showState(); }
      showWhere();
      fetchNear();
    });
  }, { passive: true });

  // ---- the end ----

  function showState() {
    const button = byId("follow");
    button.textContent = state.following ? "Auto-scroll on" : "Auto-scroll off";
    button.setAttribute("aria-pressed", String(state.following));
    const below = byId("log-below");
    below.hidden = !state.below;
    below.textContent = `${state.below}${goesOn() ? "+" : ""} new`;
  }

  async function news() {
    if (goesOn()) return;
    const part = await fetchPart({ after: parts().at(-1).dataset.last });
    if (!part) return;
    const number = part.querySelectorAll(".entry").length;
    const more = part.dataset.later === "yes";
    if (state.following) {
      append(part);
      dropFirst();
      settle();
      toEnd();
      if (more) inTurn(catchUp);
    } else {
      state.below += number;
      if (parts().length < MOST) append(part); else parts().at(-1).dataset.later = "yes";
      settle();
    }
    showWhere();
  }

  async function catchUp() {
    if (state.following && goesOn()) replaceAll(await fetchPart({}));
    toEnd();
  }

  async function follow() {
    state.below = 0;
    if (goesOn()) replaceAll(await fetchPart({}));
    state.following = true;
    toEnd();
    showState();
    showWhere();
  }

  // ---- going somewhere ----

  function show(target) {
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    box.querySelector(".here")?.classList.remove("here");
    const entry = target.closest("li") || target;
    entry.classList.add("here");
    entry.tabIndex = -1;
    state.following = false;
    state.place = Number((target.id.match(/^event-(\d+)$/) || [])[1] || 0);
    box.scrollTop += topOf(target) - topOf(box) - 48;
    entry.focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest" });
    showState();
    showWhere();
    fetchNear();
  }

  const loaded = (id) => { const found = id && byId(id); return found && box.contains(found) ? found : null; };

  async function go(href) {
    const where = new URL(href, location.href);
    const named = where.hash.slice(1);
    let target = state.only === "all" ? loaded(named) : null;
    if (!target) {
      const part = partIn(await fetchText(`${where.pathname}${where.search}`));
      if (!part) return false;
      target = named ? null : loaded(part.dataset.target);
      if (!target) {
        choose("all");
        replaceAll(part);
        target = loaded(named) || loaded(part.dataset.target) || part.querySelector(".entry");
      }
    }
    if (target) show(target);
    return Boolean(target);
  }

  async function nextError() {
    const seen = firstSeen();
    const from = state.place ?? (Number((seen?.id || "").replace("event-", "")) || 1) - 1;
    say(await go(`${address.pathname}?error=${from}`) ? "" : "No errors.");
  }

  const unsaid = box.querySelector(".log-empty").textContent;

  function choose(only) {
    state.only = only;
    box.querySelector(".log-empty").textContent = only === "all" ? unsaid : NONE;
    for (const link of document.querySelectorAll("a[data-only]")) {
      if (link.dataset.only === only) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  }

  async function showOnly(only) {
    choose(only);
    state.place = null;
    replaceAll(await fetchPart({}));
    say(parts()[0].children.length ? "" : NONE);
    await follow();
  }

  // ---- what is too long to stand in the page ----

  async function showWhole(link) {
    const text = await fetchText(link.href);
    const made = document.createElement("template");
    made.innerHTML = text;
    link.closest(".shortened").replaceWith(made.content);
  }

  document.addEventListener("toggle", (event) => {
    if (!event.target.open || !box.contains(event.target)) return;
    const link = event.target.querySelector(":scope > .shortened > a[data-whole]");
    if (link) inTurn(() => showWhole(link));
  }, true);

  // ---- what one does ----

  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    const link = event.target.closest?.("a[data-to-log], a[data-only], a[data-whole], #log-earlier a");
    if (!link || (link.matches("[data-whole]") && !box.contains(link))) return;
    event.preventDefault();
    if (link.matches("[data-to-log]")) inTurn(() => go(link.href));
    else if (link.matches("[data-only]")) inTurn(() => showOnly(link.dataset.only));
    else if (link.matches("[data-whole]")) inTurn(() => showWhole(link));
    else inTurn(earlier);
  });

  byId("follow").addEventListener("click", () => {
    if (state.following) { state.following = false; showState(); } else inTurn(follow);
  });
  byId("log-below").addEventListener("click", () => inTurn(follow));
  byId("next-error").addEventListener("click", () => inTurn(nextError));

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest?.(TYPING) || document.querySelector("dialog[open]")) return;
    if (event.key === "f") inTurn(follow);
    else if (event.key === "e") inTurn(nextError);
  });

  for (const name of [`catherder:task-${box.dataset.task}-events`, "catherder:refresh"]) {
    document.body.addEventListener(name, () => inTurn(news));
  }

  function goToFragment() {
    const event = location.hash.match(/^#event-(\d+)$/);
    if (event) inTurn(() => go(`${address.pathname}?around=${event[1]}${location.hash}`));
  }

  addEventListener("hashchange", goToFragment);
  document.querySelector(".log-buttons").hidden = false;
  settle();
  toEnd();
  goToFragment();
})();
