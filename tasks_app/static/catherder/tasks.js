// The lists of tasks, which are fetched again whenever a task changes. The selection outlives that: x selects the
// row that has the focus, Escape clears the selection. While the pointer or the focus is in the lists, no row
// moves: one that belongs to another group is greyed and says which. The numbers are always those of now.
(() => {
  "use strict";
  const selected = new Set();
  let last = null; // the task that was selected last
  const bulk = document.getElementById("bulk");
  const results = document.getElementById("bulk-results");
  const boxes = () => document.querySelectorAll("input[name=task][form=bulk]");

  function show() {
    for (const box of boxes()) box.checked = selected.has(box.value);
    document.getElementById("bulk-count").textContent = `${selected.size} selected`;
    bulk.classList.toggle("has-selection", selected.size > 0);
    offerActions();
  }

  // An action that no selected task allows is not offered.
  function offerActions() {
    const chosen = [...boxes()].filter((box) => box.checked);
    const allows = (action) => chosen.some((box) => box.dataset.can.split(" ").includes(action));
    for (const button of bulk.querySelectorAll("[name=action]")) {
      const offered = button.closest("details") || button;
      const isHidden = !allows(button.value);
      if (isHidden && offered.contains(document.activeElement)) leaveBar();
      offered.hidden = isHidden;
    }
  }

  function select(box, wanted) {
    if (wanted) selected.add(box.value); else selected.delete(box.value);
    last = box.value;
    results.replaceChildren();
    show();
  }

  // What had the focus in the bar disappears: the focus goes back to the row that was selected last.
  function leaveBar() {
    if (!bulk.contains(document.activeElement)) return;
    const row = [...document.querySelectorAll("#groups .pick > input")].find((box) => box.value === last);
    (row || document.querySelector("#groups .row-title > a") || document.getElementById("main")).focus();
  }

  function clear() {
    selected.clear();
    leaveBar();
    results.replaceChildren();
    document.getElementById("bulk-cancel").open = false;
    show();
  }

  // Tasks that were selected and then left the lists, because they changed or a filter hides them, do not count.
  function forgetMissing() {
    const listed = new Set([...boxes()].map((box) => box.value));
    for (const task of [...selected]) if (!listed.has(task)) selected.delete(task);
    show();
  }

  // ---- the filters: the address says the same as the form, and the lists are those of the address ----

  function followFilters() {
    const form = document.getElementById("task-filters");
    if (!form) return;
    const wanted = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    const shown = new URLSearchParams(location.search);
    shown.delete("page"); // a filter begins at the first one
    for (const parameters of [wanted, shown]) parameters.sort();
    if (wanted.toString() === shown.toString()) return;
    history.replaceState(null, "", location.pathname + (`${wanted}` && `?${wanted}`));
  }

  document.addEventListener("htmx:configRequest", (event) => {
    if (event.detail.elt.id !== "groups") return;
    followFilters();
    event.detail.path = location.pathname + location.search;
  });
  document.addEventListener("submit", (event) => {
    if (event.target.id === "task-filters") event.preventDefault();
  });

  // ---- rows that stay where they are while somebody points at them ----

  let waiting = null; // what was fetched last and is not shown yet
  let address = location.href; // of the rows that are shown; with another one, a filter asks for others
  const lists = () => document.getElementById("task-groups");
  const isHeld = () => !document.hidden && (lists().matches(":hover") || lists().contains(document.activeElement));
  const rowsOf = (root) => [...root.querySelectorAll("[data-place]")];
  const groupOf = (row) => row.closest("[data-group]")?.dataset;

  function parse(text) {
    const made = document.createElement("template");
    made.innerHTML = text;
    return made.content;
  }

  const placementOf = (root) => rowsOf(root).map((row) => `${groupOf(row).group} ${row.dataset.place}`).join();

  function stay(content) {
    document.getElementById("task-summary").replaceWith(content.querySelector("#task-summary").cloneNode(true));
    for (const title of lists().querySelectorAll("[data-group] h2")) {
      title.querySelector(".number").textContent = content.querySelector(`#${title.id} .number`)?.textContent ?? "0";
    }
    const fetched = new Map(rowsOf(content).map((row) => [row.dataset.place, row]));
    for (const row of rowsOf(lists())) {
      const found = fetched.get(row.dataset.place);
      const now = (found || row).cloneNode(true);
      const to = found && groupOf(found);
      if (to?.group !== groupOf(row).group) {
        now.classList.add("is-gone");
        now.querySelector(".row-now").textContent = `→ ${to ? to.title : "no longer listed"}`;
      }
      now.style.height = `${row.offsetHeight}px`;
      window.catherder.replaceKeepingFocus(row, () => row.replaceWith(now));
      window.htmx.process(now);
    }
  }

  function release() {
    if (waiting === null || isHeld()) return;
    const content = parse(waiting);
    const list = document.getElementById("groups");
    waiting = null;
    window.catherder.replaceKeepingFocus(list, () => list.replaceChildren(content));
    window.htmx.process(list);
    forgetMissing();
  }

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.target.id !== "groups" || !event.detail.shouldSwap) return;
    const content = parse(event.detail.serverResponse);
    const isFiltered = location.href !== address;
    address = location.href;
    waiting = null;
    if (isFiltered || !isHeld() || placementOf(content) === placementOf(lists())) return;
    event.detail.shouldSwap = false;
    waiting = event.detail.serverResponse;
    stay(content);
    forgetMissing();
  });
  for (const name of ["pointermove", "pointerdown", "visibilitychange"]) document.addEventListener(name, release);
  document.addEventListener("focusout", () => setTimeout(release));

  // ---- the selection ----

  document.addEventListener("change", (event) => {
    if (event.target.matches("input[name=task][form=bulk]")) select(event.target, event.target.checked);
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("#bulk-clear, [data-close-results]")) clear();
  });

  document.addEventListener("keydown", (event) => {
    if (!window.catherder.isShortcut(event)) return;
    const box = event.target.closest?.(".row")?.querySelector("input[name=task]");
    if (event.key === "x" && box) select(box, !box.checked);
    else if (event.key === "Escape" && (selected.size || results.firstChild)) clear();
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target === results) {
      selected.clear();
      document.getElementById("bulk-cancel").open = false;
      results.querySelector("[data-close-results]").focus(); // the button that was pressed disappears
      show();
    } else forgetMissing();
  });
  addEventListener("pageshow", () => { // the browser may have kept what was checked
    for (const box of boxes()) if (box.checked) selected.add(box.value);
    show();
  });
})();
