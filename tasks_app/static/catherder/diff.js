// The diff page: the tree of files with its keys and filter, what is viewed, and the split view, which needs room.
(() => {
  "use strict";
  const all = (root, selector) => [...root.querySelectorAll(selector)];
  const page = () => document.querySelector(".diff-page");
  const stored = (name, value) => {
    try {
      if (value !== undefined) localStorage.setItem(name, value);
      return localStorage.getItem(name);
    } catch { return null; } // then it is not kept
  };

  // ---- the tree ----

  const tree = () => document.getElementById("file-tree");
  const rows = () => all(tree(), ".tree-row");
  const isShown = (row) => !row.hidden;
  const levelOf = (row) => Number(row.getAttribute("aria-level"));
  const isFolder = (row) => row.classList.contains("tree-folder");
  const isClosed = (row) => isFolder(row) && row.getAttribute("aria-expanded") === "false";

  function arrange() {
    const words = tree().querySelector(".tree-filter").value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    let closed = Infinity; // the level of the closed folder that the row is in
    for (const row of rows()) {
      const level = levelOf(row);
      if (level <= closed) closed = Infinity;
      const fits = isFolder(row) ? !words.length : words.every((word) => row.dataset.name.includes(word));
      row.hidden = !fits || (closed !== Infinity && !words.length);
      if (isClosed(row) && closed === Infinity) closed = level;
      found += !row.hidden;
    }
    tree().querySelector(".tree-none").hidden = found > 0;
    const shown = rows().filter(isShown);
    const current = shown.find((row) => row.tabIndex === 0 && row.dataset.visited) || shown[0];
    for (const row of rows()) row.tabIndex = row === current ? 0 : -1;
  }

  function focusRow(row) {
    if (!row) return;
    for (const one of rows()) { one.tabIndex = one === row ? 0 : -1; delete one.dataset.visited; }
    row.dataset.visited = "yes";
    row.focus();
  }

  function setOpen(row, open) {
    row.setAttribute("aria-expanded", String(open));
    arrange();
  }

  function parentOf(row) {
    const before = rows().slice(0, rows().indexOf(row)).reverse();
    return before.find((one) => levelOf(one) < levelOf(row));
  }

  function treeKey(event, row) {
    const shown = rows().filter(isShown);
    const here = shown.indexOf(row);
    const moves = { ArrowDown: shown[here + 1], ArrowUp: shown[here - 1], Home: shown[0], End: shown[shown.length - 1] };
    if (event.key in moves) focusRow(moves[event.key]);
    else if (event.key === "ArrowRight" && isClosed(row)) setOpen(row, true);
    else if (event.key === "ArrowRight" && isFolder(row)) focusRow(shown[here + 1]);
    else if (event.key === "ArrowLeft" && isFolder(row) && !isClosed(row)) setOpen(row, false);
    else if (event.key === "ArrowLeft") focusRow(parentOf(row));
    else return;
    event.preventDefault();
  }

  // Beside the files it stands open unless it was closed; above them, in a narrow window, only when asked for.
  const beside = matchMedia("(min-width: 1000px)");

  function showTree(open, keep) {
    document.querySelector(".tree-toggle")?.setAttribute("aria-expanded", String(open));
    page()?.classList.toggle(beside.matches ? "tree-closed" : "tree-open", open !== beside.matches);
    if (keep && beside.matches) stored("catherder:tree", open ? "open" : "closed");
  }

  const fitTree = () => { if (tree()) showTree(beside.matches && stored("catherder:tree") !== "closed", false); };

  function openFile(row) {
    const file = document.querySelector(`${row.getAttribute("href")} > details`);
    if (file) file.open = true;
  }

  // ---- viewed files ----

  function viewedChanged(form, xhr) {
    const box = form.closest(".file-box");
    const mark = form.elements.viewed;
    if (xhr.status !== 204) { // htmx takes a 409 for a success
      mark.checked = !mark.checked;
      say(xhr.status === 409 ? xhr.responseText : "The mark was not saved. Try again.");
      return;
    }
    const file = box.querySelector("details");
    file.open = !mark.checked;
    if (mark.checked && box.getBoundingClientRect().top < 0) box.scrollIntoView();
    document.querySelector(`.tree-row[href="#${box.id}"]`)?.classList.toggle("is-viewed", mark.checked);
    const counter = document.getElementById("viewed-count");
    const viewed = all(document, ".file-viewed [name=viewed]").filter((one) => one.checked).length;
    if (counter) counter.textContent = `${viewed}/${counter.dataset.count} viewed`;
  }

  function say(text) {
    const line = page()?.querySelector(".diff-news");
    if (!line) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small";
    button.textContent = "Close";
    const before = document.activeElement;
    button.addEventListener("click", () => { line.hidden = true; before.focus(); });
    line.replaceChildren(`${text} `, button);
    line.hidden = false;
  }

  // ---- the split view: a narrow window shows the unified one, and the choice is kept ----

  const wide = matchMedia("(min-width: 1200px)");
  let wantsSplit = null;

  function fitView() {
    const place = page();
    if (!place) return;
    const isSplit = place.classList.contains("diff-split");
    wantsSplit ??= isSplit;
    if (wantsSplit && isSplit !== wide.matches && !document.querySelector(".thread-form textarea:focus")) {
      window.htmx?.ajax("GET", wide.matches ? place.dataset.split : place.dataset.unified, { target: "#diff" });
    }
  }

  // ---- keys: ] [ go to the next and previous file, n p to hunks; v marks the file as viewed, c comments ----

  const EDGE = 100; // below what stands still at the top
  const boxes = () => all(document, ".file-box");
  const topOf = (element) => element.getBoundingClientRect().top;

  function currentFile() {
    const focused = document.activeElement.closest(".file-box");
    return focused || boxes().filter((box) => topOf(box) <= EDGE + 4).at(-1) || boxes()[0];
  }

  function goToFile(by) {
    const here = boxes().indexOf(currentFile());
    const reached = topOf(boxes()[here]) > EDGE + 4 && !document.activeElement.closest(".file-box");
    const next = boxes()[reached && by > 0 ? here : here + by];
    if (!next) return;
    next.scrollIntoView();
    next.querySelector("summary").focus({ preventScroll: true });
  }

  const isChange = (row) => row.matches(".dl-add, .dl-del, .dr:has(.dl-add, .dl-del)");

  // The first changed row of each run of changed rows.
  function hunks() {
    return all(document, ".file[open] .diff-lines.reviewed > :is(.dl, .dr)").filter(
      (row) => isChange(row) && !(row.previousElementSibling && isChange(row.previousElementSibling)));
  }

  function goToHunk(by) {
    const rows = hunks();
    const chosen = document.querySelector(".dl.is-chosen");
    const here = chosen ? rows.indexOf(chosen.closest(".dr") || chosen) : -1;
    const seen = rows.findIndex((row) => topOf(row) > EDGE + 40);
    const next = here >= 0 ? rows[here + by] : rows[by > 0 ? seen : seen - 1];
    if (!next) return;
    chosen?.classList.remove("is-chosen");
    const line = next.matches("[data-line]") ? next : next.querySelector("[data-line]");
    line?.classList.add("is-chosen");
    next.closest(".reviewed").focus({ preventScroll: true });
    next.scrollIntoView({ block: "center" });
  }

  function comment() {
    const line = document.activeElement.matches(".reviewed") && document.activeElement.querySelector(".is-chosen .dn");
    (line || currentFile()?.querySelector("[data-comment-file]"))?.click();
  }

  const KEYS = {
    "]": () => goToFile(1),
    "[": () => goToFile(-1),
    n: () => goToHunk(1),
    p: () => goToHunk(-1),
    v: () => currentFile()?.querySelector("[name=viewed]").click(),
    c: comment,
  };

  // Before the keys of every page, as n makes a new task there; after g they name a page.
  let afterG = 0;
  document.addEventListener("keydown", (event) => {
    const isNamed = performance.now() < afterG;
    afterG = event.key === "g" ? performance.now() + 1500 : 0;
    if (isNamed || !(event.key in KEYS) || !boxes().length || !window.catherder.isShortcut(event)) return;
    event.preventDefault();
    KEYS[event.key]();
  }, true);

  // A link to the review opens its form.
  function openReview() {
    const fold = location.hash === "#review-title" && document.getElementById("finish-review");
    if (!fold) return;
    fold.open = true;
    document.getElementById("review-body").focus();
  }

  addEventListener("DOMContentLoaded", openReview);
  addEventListener("hashchange", openReview);

  // ---- all of it ----

  function prepare() {
    if (tree() && !tree().dataset.ready) {
      tree().dataset.ready = "yes";
      fitTree();
      arrange();
    }
    fitView();
  }

  addEventListener("DOMContentLoaded", prepare);
  document.addEventListener("htmx:load", prepare);
  wide.addEventListener("change", fitView);
  beside.addEventListener("change", fitTree);
  document.addEventListener("input", (event) => { if (event.target.matches?.(".tree-filter")) arrange(); });
  document.addEventListener("keydown", (event) => {
    const row = event.target.closest?.(".tree-row");
    if (row && !event.ctrlKey && !event.metaKey && !event.altKey) treeKey(event, row);
    else if (event.target.matches?.(".tree-filter") && event.key === "ArrowDown") {
      event.preventDefault();
      focusRow(rows().find(isShown));
    }
  });
  document.addEventListener("click", (event) => {
    const row = event.target.closest?.(".tree-row");
    if (row && isFolder(row)) setOpen(row, isClosed(row));
    else if (row) openFile(row);
    const toggle = event.target.closest?.(".tree-toggle");
    if (toggle) showTree(toggle.getAttribute("aria-expanded") !== "true", true);
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    const form = event.detail.elt;
    if (form.matches?.(".file-viewed")) viewedChanged(form, event.detail.xhr);
  });
})();
