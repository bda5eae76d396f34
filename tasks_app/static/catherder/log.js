// The log of a task: a window of parts around what one looks at. Parts are fetched as one scrolls, and those
// far away are dropped, so that the page has the same size whatever the length of the log. What one looks at
// stays where it is. The end is followed while one looks at it.
//
// f follows the end, s goes to the start, e to the next failure, l and L to the links of entries, / to the search. A link with data-to-log leads to a place in the log: its
// address is that of the part, its fragment the event.
(() => {
  "use strict";

  const MAX_PARTS = 6; // parts in the page
  const MAX_ENTRIES = 100; // entries that one part takes at the end, before another begins
  const LOAD_ERROR = "The log could not be loaded. Try again.";
  const NO_MATCHES = "No entries of this kind.";
  const FETCH_DISTANCE = 800; // pixels from an edge at which the next part is fetched

  const box = document.getElementById("log-box");
  if (!box) return;
  const byId = (id) => document.getElementById(id);
  const address = new URL(box.dataset.address, location.href);
  const state = { only: byId("log-search").elements.only.value, following: true, below: 0, fetching: false, place: null, words: "" };

  const parts = () => [...box.querySelectorAll(":scope > ol.part")];
  const hasLater = () => parts().at(-1)?.dataset.later === "yes";
  const isAtEnd = () => !hasLater() && box.scrollHeight - box.scrollTop - box.clientHeight < 24;
  const scrollToEnd = () => { box.scrollTop = box.scrollHeight; };
  const topOf = (element) => element.getBoundingClientRect().top;

  // One thing after the other: two fetches at once would put a part in twice.
  let queue = Promise.resolve();
  const enqueue = (job) => (queue = queue.then(job).then(clearLoadError, () => showMessage(LOAD_ERROR)));

  function clearLoadError() {
    if (byId("log-message").textContent === LOAD_ERROR) showMessage("");
  }

  function showMessage(text) { byId("log-message").textContent = text; }

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
    return parsePart(await fetchText(where));
  }

  function parsePart(text) {
    const made = document.createElement("template");
    made.innerHTML = text;
    return made.content.querySelector("ol.part");
  }

  // ---- putting parts in and taking them out ----

  function firstVisible() {
    const edge = topOf(box);
    const part = parts().find((one) => one.getBoundingClientRect().bottom > edge);
    return part && [...part.children].find((one) => one.getBoundingClientRect().bottom > edge);
  }

  function keepScrollPosition(change) {
    const seen = firstVisible();
    const before = seen && topOf(seen);
    change();
    if (seen?.isConnected) box.scrollTop += topOf(seen) - before;
  }

  function dropFirst() {
    while (parts().length > MAX_PARTS) {
      parts()[0].remove();
      parts()[0].dataset.earlier = "yes";
    }
  }

  function dropLast() {
    while (parts().length > MAX_PARTS) {
      parts().at(-1).remove();
      parts().at(-1).dataset.later = "yes";
    }
  }

  // A result may come in another part than its call. That of a call that waited for an approval is of a later
  // run and stands there; only the answer to a question joins it.
  function joinResults() {
    for (const result of box.querySelectorAll("[data-result-of]")) {
      const call = box.querySelector(`[data-call="${CSS.escape(result.dataset.resultOf)}"]`);
      if (!call || (call.dataset.run !== result.dataset.run && !("asks" in call.dataset))) continue;
      result.querySelector(".result-of")?.remove();
      const place = document.createElement("div");
      place.append(...result.querySelector(".entry-body").childNodes);
      call.querySelector(".results").append(place);
      if (result.dataset.outcome && (call.querySelector("details .results") || "showsOutcome" in result.dataset)) {
        call.querySelector(".call-outcome").textContent = result.dataset.outcome;
      }
      call.classList.toggle("entry-failed", call.matches(".entry-failed") || result.matches(".entry-failed"));
      place.id = result.id;
      result.remove();
    }
  }

  // What humans decide, and that a call was set aside, is known only after its line was shown.
  function showDecisions() {
    for (const told of byId("log-remarks").querySelectorAll("[data-decides]")) {
      const call = box.querySelector(`[data-call="${CSS.escape(told.dataset.decides)}"]`);
      if (call && told.textContent) call.querySelector(".call-outcome").textContent = told.textContent;
    }
  }

  // A question stands out as long as its card is open, whatever was answered after it.
  function markOpenQuestions() {
    for (const entry of box.querySelectorAll("[data-asked]")) {
      entry.classList.toggle("is-open", !!document.querySelector(`#question-${entry.dataset.asked}.card-open`));
    }
  }

  // What was said in a review stands below the newest entry until an entry follows it.
  function showRemarks() {
    const remarks = byId("log-remarks");
    for (const one of remarks.querySelectorAll("[data-remark]")) {
      if (box.querySelector(`.part [data-remark="${one.dataset.remark}"]`)) one.remove();
    }
    remarks.hidden = hasLater();
  }

  document.addEventListener("htmx:afterSettle", (event) => {
    markOpenQuestions();
    if (event.target.id !== "log-remarks") return;
    showRemarks();
    showDecisions();
    if (state.following) scrollToEnd();
  });

  function afterChange() {
    markOpenQuestions();
    showRemarks();
    joinResults();
    showDecisions();
    const first = parts()[0];
    const earlier = byId("log-earlier");
    earlier.hidden = first?.dataset.earlier !== "yes";
    earlier.querySelector("a").href = `${address.pathname}?before=${first?.dataset.first || 0}&only=${state.only}`;
    highlight();
    showState();
  }

  function replaceAll(part) {
    for (const old of parts()) old.remove();
    byId("log-earlier").after(part);
    afterChange();
  }

  function append(part) {
    const last = parts().at(-1);
    if (last.children.length + part.children.length <= MAX_ENTRIES) {
      last.append(...part.children);
      last.dataset.last = part.dataset.last;
      last.dataset.ends = part.dataset.ends;
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
    keepScrollPosition(() => { first.before(part); dropLast(); afterChange(); });
  }

  async function later() {
    if (!hasLater()) return;
    const part = await fetchPart({ after: parts().at(-1).dataset.last });
    keepScrollPosition(() => {
      if (part) append(part); else delete parts().at(-1).dataset.later;
      dropFirst();
      afterChange();
    });
  }

  function fetchIfNearEdge() {
    if (state.fetching) return;
    const left = box.scrollHeight - box.scrollTop - box.clientHeight;
    const job = box.scrollTop < FETCH_DISTANCE && parts()[0]?.dataset.earlier ? earlier : left < FETCH_DISTANCE && hasLater() ? later : null;
    if (!job) return;
    state.fetching = true;
    enqueue(job).finally(() => {
      state.fetching = false;
      requestAnimationFrame(fetchIfNearEdge);
    });
  }

  // Of what stands below the line; while the end is followed, of the newest entry: that of the step that runs.
  function showCurrentStep() {
    const where = byId("log-where");
    const edge = state.following ? box.getBoundingClientRect().bottom : topOf(box) + 20;
    const part = parts().findLast((one) => topOf(one) < edge) || parts()[0];
    const begun = part && [...part.querySelectorAll(".run-start")].findLast((one) => topOf(one) < edge);
    const label = (begun || part)?.dataset.label || "";
    const words = label && `${label} · ${percentOf(part, edge)} % of the log`;
    if (where.textContent !== words) where.textContent = words;
    where.hidden = !words || box.scrollTop < 8;
  }

  // How much of the whole log is above the edge: all of it at its end.
  function percentOf(part, edge) {
    const entries = [...part.children];
    const seen = entries.filter((one) => topOf(one) < edge).length;
    const [begins, ends] = [Number(part.dataset.begins), Number(part.dataset.ends)];
    return Math.round(begins + ((ends - begins) * seen) / Math.max(1, entries.length));
  }

  let frameRequested = false;
  box.addEventListener("scroll", () => {
    if (frameRequested) return;
    frameRequested = true;
    requestAnimationFrame(() => {
      frameRequested = false;
      if (state.following !== isAtEnd()) { state.following = isAtEnd(); if (state.following) state.below = 0; showState(); }
      showCurrentStep();
      fetchIfNearEdge();
    });
  }, { passive: true });

  // ---- the end ----

  function showState() {
    const button = byId("follow");
    button.textContent = state.following ? "Follow ✓" : "Follow";
    button.setAttribute("aria-pressed", String(state.following));
    const below = byId("log-below");
    below.hidden = !state.below;
    below.textContent = `${state.below}${hasLater() ? "+" : ""} new`;
  }

  async function fetchNewEntries() {
    if (hasLater()) return;
    const part = await fetchPart({ after: parts().at(-1).dataset.last });
    if (!part) return;
    const number = part.querySelectorAll(".entry").length;
    const more = part.dataset.later === "yes";
    if (state.following) {
      append(part);
      dropFirst();
      afterChange();
      scrollToEnd();
      if (more) enqueue(catchUp);
    } else {
      state.below += number;
      if (parts().length < MAX_PARTS) append(part); else parts().at(-1).dataset.later = "yes";
      afterChange();
    }
    showCurrentStep();
  }

  async function catchUp() {
    if (state.following && hasLater()) replaceAll(await fetchPart({}));
    scrollToEnd();
  }

  async function follow() {
    state.below = 0;
    if (hasLater()) replaceAll(await fetchPart({}));
    state.following = true;
    scrollToEnd();
    showState();
    showCurrentStep();
  }

  // ---- going somewhere ----

  async function goToStart() {
    state.following = false;
    if (parts()[0]?.dataset.earlier) replaceAll(await fetchPart({ beginning: "" }));
    box.scrollTop = 0;
    showState();
    showCurrentStep();
  }

  function showEntry(target, { focus = true } = {}) {
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    box.querySelector(".is-selected")?.classList.remove("is-selected");
    const entry = target.closest("li") || target;
    entry.classList.add("is-selected");
    entry.tabIndex = -1;
    state.following = false;
    state.place = Number((target.id.match(/^event-(\d+)$/) || [])[1] || 0);
    box.scrollTop += topOf(target) - topOf(box) - 48;
    if (focus) entry.focus({ preventScroll: true });
    box.scrollIntoView({ block: "nearest" });
    showState();
    showCurrentStep();
    fetchIfNearEdge();
  }

  const findInPage = (id) => { const found = id && byId(id); return found && box.contains(found) ? found : null; };

  async function goTo(href) {
    const where = new URL(href, location.href);
    const named = where.hash.slice(1);
    let target = state.only === "all" ? findInPage(named) : null;
    if (!target) {
      const part = parsePart(await fetchText(`${where.pathname}${where.search}`));
      if (!part) return false;
      target = named ? null : findInPage(part.dataset.target);
      if (!target) {
        selectFilter("all");
        replaceAll(part);
        target = findInPage(named) || findInPage(part.dataset.target) || part.querySelector(".entry");
      }
    }
    if (target) showEntry(target);
    return Boolean(target);
  }

  async function nextError() {
    const seen = firstVisible();
    const from = state.place ?? (Number((seen?.id || "").replace("event-", "")) || 1) - 1;
    showMessage(await goTo(`${address.pathname}?error=${from}`) ? "" : "No errors.");
  }

  // The Tab key would stop at each of thousands: from the entry that is selected, or the first in sight, on.
  function focusLink(by) {
    const links = [...box.querySelectorAll(".entry-time")];
    const here = links.indexOf(document.activeElement);
    const seen = box.querySelector(".is-selected") || firstVisible();
    const link = here < 0 ? links.find((one) => seen?.contains(one)) || links[0] : links[here + by];
    if (!link) return;
    state.following = false;
    link.focus();
    showState();
  }

  // ---- searching ----

  const wordsNow = () => byId("log-words").value.trim();

  async function find(way) {
    const words = wordsNow();
    if (!words) return clearSearch();
    const from = state.words === words && state.place ? { [way]: state.place } : {};
    state.words = words;
    const part = await fetchPart({ find: words, ...from });
    for (const id of ["log-previous", "log-next"]) byId(id).hidden = !part;
    if (!part) { highlight(); showMessage("Not found."); return; }
    if (!findInPage(part.dataset.target)) replaceAll(part);
    showEntry(findInPage(part.dataset.target), { focus: false });
    highlight();
    const { place, total } = part.dataset;
    showMessage(`${Number(place) ? `${place} of ` : ""}${total}${total === "1000" ? "+" : ""}`);
  }

  function clearSearch() {
    byId("log-words").value = state.words = "";
    state.place = null;
    for (const id of ["log-previous", "log-next"]) byId(id).hidden = true;
    highlight();
    showMessage("");
  }

  // The browser paints the words that were found; the page itself stays as it is.
  function highlight() {
    if (!CSS.highlights) return;
    CSS.highlights.delete("log-found");
    if (state.words) CSS.highlights.set("log-found", new Highlight(...rangesOf(state.words.toLowerCase())));
  }

  function rangesOf(words) {
    const ranges = [];
    const texts = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
    while (texts.nextNode() && ranges.length < 2000) {
      const text = texts.currentNode.data.toLowerCase();
      for (let at = text.indexOf(words); at >= 0; at = text.indexOf(words, at + words.length)) {
        if (at + words.length > texts.currentNode.length) break; // lower case may be longer
        const range = document.createRange();
        range.setStart(texts.currentNode, at);
        range.setEnd(texts.currentNode, at + words.length);
        ranges.push(range);
      }
    }
    return ranges;
  }

  byId("log-search").addEventListener("submit", (event) => { event.preventDefault(); enqueue(() => find("after")); });
  byId("log-previous").addEventListener("click", () => enqueue(() => find("before")));
  byId("log-words").addEventListener("search", () => { if (!wordsNow()) clearSearch(); });
  byId("log-words").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.shiftKey) { event.preventDefault(); enqueue(() => find("before")); }
    else if (event.key === "Escape") { event.preventDefault(); clearSearch(); box.focus({ preventScroll: true }); }
  });

  const emptyText = box.querySelector(".log-empty").textContent;

  function selectFilter(only) {
    state.only = byId("log-search").elements.only.value = only;
    box.querySelector(".log-empty").textContent = only === "all" ? emptyText : NO_MATCHES;
    for (const link of document.querySelectorAll("a[data-only]")) {
      if (link.dataset.only === only) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
    }
  }

  async function applyFilter(only) {
    clearSearch();
    selectFilter(only);
    state.place = null;
    replaceAll(await fetchPart({}));
    showMessage(parts()[0].children.length ? "" : NO_MATCHES);
    await follow();
  }

  // ---- what is too long to stand in the page ----

  async function showInFull(link) {
    const text = await fetchText(link.href);
    const made = document.createElement("template");
    made.innerHTML = text;
    const short = link.closest(".shortened");
    window.catherder.replaceKeepingFocus(short, () => short.replaceWith(made.content));
    highlight();
  }

  document.addEventListener("toggle", (event) => {
    if (!event.target.open || !box.contains(event.target)) return;
    const link = event.target.querySelector(":scope > .shortened > a[data-whole]");
    if (link) enqueue(() => showInFull(link));
  }, true);

  // ---- what one does ----

  document.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    const link = event.target.closest?.("a[data-to-log], a[data-only], a[data-whole], #log-earlier a");
    if (!link || (link.matches("[data-whole]") && !box.contains(link))) return;
    event.preventDefault();
    if (link.matches("[data-to-log]")) enqueue(() => goTo(link.href));
    else if (link.matches("[data-only]")) enqueue(() => applyFilter(link.dataset.only));
    else if (link.matches("[data-whole]")) enqueue(() => showInFull(link));
    else enqueue(earlier);
  });

  byId("follow").addEventListener("click", () => {
    if (state.following) { state.following = false; showState(); } else enqueue(follow);
  });
  byId("log-below").addEventListener("click", () => enqueue(follow));
  byId("log-start").addEventListener("click", () => enqueue(goToStart));
  byId("next-error").addEventListener("click", () => enqueue(nextError));

  document.addEventListener("keydown", (event) => {
    if (!window.catherder.isShortcut(event)) return;
    if (event.key === "f") enqueue(follow);
    else if (event.key === "s") enqueue(goToStart);
    else if (event.key === "/") { event.preventDefault(); byId("log-more").open = true; byId("log-words").focus(); }
    else if (event.key === "e") enqueue(nextError);
    else if (event.key === "l" || event.key === "L") focusLink(event.key === "l" ? 1 : -1);
  });

  for (const name of [`catherder:task-${box.dataset.task}-events`, "catherder:refresh"]) {
    document.body.addEventListener(name, () => enqueue(fetchNewEntries));
  }

  function goToFragment() {
    const event = location.hash.match(/^#event-(\d+)$/);
    if (event) enqueue(() => goTo(`${address.pathname}?around=${event[1]}${location.hash}`));
  }

  addEventListener("hashchange", goToFragment);
  // The page of a place in the log, such as a run, opens there.
  function begin() {
    const target = findInPage(parts()[0].dataset.target);
    state.following = !target && !hasLater();
    state.words = wordsNow();
    afterChange();
    if (target) showEntry(target, { focus: false });
    else if (state.following) scrollToEnd();
    goToFragment();
  }

  begin();
})();
