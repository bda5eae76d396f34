// The inbox as two panes: the list keeps the selection, and the card of the selected question is fetched beside
// it. The selection moves at once and does not depend on the focus, so that a card that is still on its way, or
// is fetched anew, takes no key press with it.
//
// A question that somebody else answered keeps its row, so that no row moves under the reader's hand. After an
// answer from here the next question opens, and Undo stands in a toast as long as the answer can be taken back.
//
// A click is an entry of the browser's history, so that Back leads to the question before; keys and what opens by
// itself only change the last entry.
//
// j and k move, which keys.js passes on. On a narrow screen the rows are links to a page with the card alone.
(() => {
  "use strict";
  const wide = matchMedia("(min-width: 1000px)");
  const list = document.getElementById("inbox-list");
  const pane = document.getElementById("inbox-question");
  const rows = () => [...list.querySelectorAll("[data-row]")];
  const cardOf = () => pane.querySelector("[data-question]");

  // `place` is where the selected row stands, or stood before its question was answered.
  // `sent`: the questions that were answered in this window.
  const state = { selected: cardOf()?.dataset.question || null, place: 0, wantsFocus: false, sent: new Set() };

  function mark() {
    const all = rows();
    for (const row of all) row.toggleAttribute("aria-current", false);
    const row = all.find((one) => one.dataset.row === state.selected);
    if (!row) return;
    row.setAttribute("aria-current", "true");
    const fold = row.closest("details");
    if (fold) fold.open = true;
    state.place = all.indexOf(row);
  }

  function select(row, { focus, isEntry = false }) {
    state.selected = row.dataset.row;
    state.wantsFocus = focus;
    mark();
    row.scrollIntoView({ block: "nearest" });
    if (isEntry) history.pushState(null, "", row.href);
    else history.replaceState(null, "", row.href);
    const url = new URL(row.href);
    url.searchParams.set("part", "question");
    const options = { source: pane, target: pane, swap: "innerHTML" };
    window.htmx.ajax("GET", url.pathname + url.search, options).catch(() => {}); // the next one replaced it
  }

  function move(by) {
    const all = rows();
    const here = all.findIndex((row) => row.dataset.row === state.selected);
    const gone = here < 0;
    let place = gone ? (by > 0 ? Math.min(state.place, all.length - 1) : state.place - 1) : here + by;
    while (all[place]?.checkVisibility() === false) place += by; // in a fold
    const next = all[place];
    if (next) select(next, { focus: true });
    else focusCard();
  }

  function focusCard() {
    const card = cardOf();
    if (card?.dataset.question !== state.selected) return; // another one is on its way
    state.wantsFocus = false;
    card.focus({ preventScroll: true });
    card.scrollIntoView({ block: "nearest" });
  }

  list.addEventListener("click", (event) => {
    const row = event.target.closest("[data-row]");
    if (!row || !wide.matches || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    select(row, { focus: true, isEntry: true });
  });

  addEventListener("popstate", () => {
    const wanted = new URLSearchParams(location.search).get("question");
    const row = rows().find((one) => one.dataset.row === wanted) || (!wanted && rows()[0]);
    if (!row) location.reload(); // it is on another page of the list
    else if (row.dataset.row !== state.selected) select(row, { focus: true });
  });

  // Told by keys.js.
  list.addEventListener("catherder:move", (event) => {
    if (!wide.matches) return;
    event.preventDefault();
    move(event.detail);
  });

  // ---- after an answer the next question opens ----

  const SETTLED = ["answered", "dismissed"];
  const toast = document.getElementById("inbox-answered");

  document.addEventListener("htmx:afterRequest", (event) => {
    const { requestConfig, successful } = event.detail;
    const sent = requestConfig?.verb === "post" && requestConfig.path.match(/\/questions\/(\d+)\/(answer|decide|dismiss|undo)\/$/);
    if (!sent || !successful) return;
    if (sent[2] === "undo") { toast.replaceChildren(); takeBack(sent[1]); return; }
    const card = document.getElementById(`question-${sent[1]}`);
    if (card && pane.contains(card) && SETTLED.includes(card.dataset.state)) goOn(card);
  });

  function goOn(card) {
    const too = card.dataset.too?.split(",") || [];
    for (const other of too) state.sent.add(other);
    const all = rows();
    const here = all.findIndex((row) => row.dataset.row === state.selected);
    const from = here < 0 ? state.place : here + 1; // the list may have been fetched without it already
    const next = [...all.slice(from), ...all.slice(0, from)]
      .find((row) => !state.sent.has(row.dataset.row) && !row.closest(".is-gone"));
    const form = card.querySelector("form.undo");
    if (!next || list.dataset.state !== "open") return;
    const words = document.createElement("p");
    words.textContent = (too.length ? `${too.length + 1} calls: ` : "") + card.querySelector(".outcome > span").textContent.replace(/,[^,]*$/, "").replace(/\s+/g, " ").trim();
    toast.replaceChildren(words);
    if (form) {
      form.setAttribute("hx-target", "#inbox-question .cards");
      form.setAttribute("hx-swap", "innerHTML");
      toast.append(form);
      window.htmx.process(form); // it left the card before that was processed
    }
    setTimeout(() => { if (toast.contains(words)) toast.replaceChildren(); }, 1000 * Number(form?.dataset.undo || 5));
    select(next, { focus: true });
  }

  // The card is there again, with what was entered, in place of the one that was shown since.
  function takeBack(number) {
    state.sent.delete(number);
    state.selected = number;
    pane.querySelectorAll(".inbox-context").forEach((context) => context.remove());
    const url = new URL(location.href);
    url.searchParams.set("question", number);
    history.replaceState(null, "", url);
    mark();
    focusCard();
  }

  // ---- a question that somebody else answered keeps its place ----

  pane.addEventListener("submit", () => { if (cardOf()) state.sent.add(cardOf().dataset.question); });

  function leave(item) {
    const left = item.cloneNode(true);
    left.classList.add("is-gone");
    left.querySelectorAll(".claim, details").forEach((part) => part.remove());
    const when = left.querySelector(".inbox-when");
    if (when) when.textContent = "No longer open";
    return left;
  }

  // The rows that were fetched, with those that went kept where they are; until the page is loaded again.
  function keepPlaces(text) {
    const made = document.createElement("template");
    made.innerHTML = text;
    const fetched = made.content.querySelector(".inbox-rows");
    if (!fetched || document.hidden) return text;
    const fetchedOf = (row) => made.content.querySelector(`#${CSS.escape(row.id)}`);
    let previous = null;
    for (const row of rows()) {
      const item = row.closest(".inbox-row");
      const now = fetchedOf(row)?.closest(".inbox-row");
      if (now) { previous = now; continue; }
      // An equal call has the row of its call instead.
      if (state.sent.has(row.dataset.row) || row.closest("details") || [...item.querySelectorAll("details [data-row]")].some(fetchedOf)) continue;
      const left = leave(item);
      if (previous) previous.after(left);
      else fetched.prepend(left);
      previous = left;
    }
    return made.innerHTML;
  }

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target === list && event.detail.shouldSwap) event.detail.serverResponse = keepPlaces(event.detail.serverResponse);
  });

  // Where no question is shown, the first one comes along: one way to the portal less until it is seen.
  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt === list && !state.selected && wide.matches) event.detail.parameters.first = "";
  });

  function takeFirst() {
    const row = cardOf() && rows().find((one) => one.dataset.row === cardOf().dataset.question);
    if (!row) return;
    state.selected = row.dataset.row;
    history.replaceState(null, "", row.href);
  }

  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target === list) {
      if (!state.selected) takeFirst();
      mark();
      const first = rows()[0];
      if (!state.selected && first && wide.matches) select(first, { focus: false });
    } else if (event.detail.target === pane && state.wantsFocus) focusCard();
  });

  mark();
})();
