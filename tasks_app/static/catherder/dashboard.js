// Selected tasks: the selection outlives the lists, which are fetched again whenever a task changes.
// x selects the row that has the focus, Escape clears the selection.
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
  }

  function select(box, wanted) {
    if (wanted) selected.add(box.value); else selected.delete(box.value);
    last = box.value;
    results.replaceChildren();
    show();
  }

  // The bar disappears, and what had the focus in it: the focus goes back to the row that was selected last.
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
  document.addEventListener("catherder:rows", forgetMissing);
  addEventListener("pageshow", () => { // the browser may have kept what was checked
    for (const box of boxes()) if (box.checked) selected.add(box.value);
    show();
  });
})();
