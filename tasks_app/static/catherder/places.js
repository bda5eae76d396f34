// Lists whose rows stay where they are while somebody looks. What a row says is always what is true; when rows
// would move, a button offers it. The list does so by itself when nobody is there: the page is hidden, or was
// not touched for a while.
(() => {
  "use strict";
  const UNTOUCHED = 30000;
  const news = document.getElementById("list-news");
  const rowsOf = (root) => [...root.querySelectorAll("[data-place]")];
  const groupOf = (row) => row.closest("section")?.getAttribute("aria-labelledby") || "";
  const placementOf = (root) => rowsOf(root).map((row) => `${groupOf(row)} ${row.dataset.place}`);
  // What was fetched last, for the list that waits for it.
  // `address`: that of the rows that are shown; with another one, a filter asks for others.
  const state = { list: null, content: null, touched: performance.now(), timer: null, address: location.href };

  const isLooking = () => !document.hidden && performance.now() - state.touched < UNTOUCHED;

  function parse(text) {
    const made = document.createElement("template");
    made.innerHTML = text;
    return made.content;
  }

  // Rows may follow at the end: that moves none.
  function movesRows(list, content) {
    const shown = placementOf(list), wanted = placementOf(content);
    return shown.some((place, number) => wanted[number] !== place);
  }

  function updateRows(list, content) {
    const fetched = new Map(rowsOf(content).map((row) => [row.dataset.place, row]));
    for (const row of rowsOf(list)) {
      const now = fetched.get(row.dataset.place)?.cloneNode(true);
      if (!now) { leave(row); continue; }
      const height = row.offsetHeight;
      window.catherder.replaceKeepingFocus(row, () => row.replaceWith(now));
      window.htmx.process(now);
      if (now.offsetHeight < height) now.style.minHeight = `${height}px`;
    }
  }

  function leave(row) {
    row.classList.add("is-gone");
    const words = document.createElement("span");
    words.textContent = "No longer running";
    row.querySelector(".activity")?.replaceChildren(words);
  }

  function wait(list, text) {
    Object.assign(state, { list, content: text });
    news.hidden = false;
    clearTimeout(state.timer);
    state.timer = setTimeout(showUnlessLooking, UNTOUCHED + 500);
  }

  function forget() {
    Object.assign(state, { list: null, content: null });
    clearTimeout(state.timer);
    news.hidden = true;
  }

  function show() {
    const { list, content } = state;
    const asked = news.contains(document.activeElement);
    forget();
    if (!list) return;
    window.catherder.replaceKeepingFocus(list, () => list.replaceChildren(parse(content)));
    window.htmx.process(list);
    document.dispatchEvent(new CustomEvent("catherder:rows"));
    if (asked) { list.tabIndex = -1; list.focus({ preventScroll: true }); }
  }

  function showUnlessLooking() {
    if (!state.list) return;
    if (!isLooking()) { show(); return; }
    clearTimeout(state.timer);
    state.timer = setTimeout(showUnlessLooking, UNTOUCHED);
  }

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target: list, serverResponse, shouldSwap } = event.detail;
    if (!shouldSwap || !list.matches("[data-places]")) return;
    const content = parse(serverResponse);
    const isFiltered = location.href !== state.address;
    state.address = location.href;
    if (isFiltered || !isLooking() || !movesRows(list, content)) { forget(); return; }
    event.detail.shouldSwap = false;
    updateRows(list, content);
    wait(list, serverResponse);
    document.dispatchEvent(new CustomEvent("catherder:rows"));
  });

  for (const name of ["pointermove", "pointerdown", "keydown", "scroll", "focusin"]) {
    document.addEventListener(name, () => { state.touched = performance.now(); }, { passive: true, capture: true });
  }
  document.addEventListener("visibilitychange", () => { if (document.hidden) show(); });
  news.querySelector("button").addEventListener("click", show);
})();
