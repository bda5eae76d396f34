// The inbox as two panes: the list keeps the selection, and the card of the selected question is fetched beside
// it. The selection moves at once and does not depend on the focus, so that a card that is still on its way, or
// is fetched anew, takes no key press with it.
//
// A question that somebody else answered keeps its row, so that no row moves under the reader's hand.
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
    state.place = all.indexOf(row);
  }

  function select(row, { focus }) {
    state.selected = row.dataset.row;
    state.wantsFocus = focus;
    mark();
    row.scrollIntoView({ block: "nearest" });
    history.replaceState(null, "", row.href);
    const url = new URL(row.href);
    url.searchParams.set("part", "question");
    const options = { source: pane, target: pane, swap: "innerHTML" };
    window.htmx.ajax("GET", url.pathname + url.search, options).catch(() => {}); // the next one replaced it
  }

  // The first key press goes to the question that is shown; then from one to the next.
  function move(by) {
    const all = rows();
    const here = all.findIndex((row) => row.dataset.row === state.selected);
    if (here >= 0 && !isActive()) { focusCard(); return; }
    const gone = here < 0;
    const next = all[gone ? (by > 0 ? Math.min(state.place, all.length - 1) : state.place - 1) : here + by];
    if (next) select(next, { focus: true });
  }

  const isActive = () => state.wantsFocus || pane.contains(document.activeElement) || list.contains(document.activeElement);

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
    select(row, { focus: true });
  });

  // Told by keys.js.
  list.addEventListener("catherder:move", (event) => {
    if (!wide.matches) return;
    event.preventDefault();
    move(event.detail);
  });

  // ---- a question that somebody else answered keeps its place ----

  pane.addEventListener("submit", () => { if (cardOf()) state.sent.add(cardOf().dataset.question); });

  function leave(item) {
    const left = item.cloneNode(true);
    left.classList.add("is-gone");
    left.querySelector(".claim")?.remove();
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
    let previous = null;
    for (const row of rows()) {
      const item = row.closest(".inbox-row");
      const now = made.content.querySelector(`#${CSS.escape(row.id)}`)?.closest(".inbox-row");
      if (now) { previous = now; continue; }
      if (state.sent.has(row.dataset.row)) continue;
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
