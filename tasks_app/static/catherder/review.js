// Comments on a diff: a click on a line's number, or Enter on the line that the arrow keys chose, opens a form
// beside it; with shift it is about several lines. Others are about a file or the whole result. What is typed
// survives a reload, and what others write appears without disturbing it.
(() => {
  "use strict";
  const LINE = ".reviewed .dl[data-line]";
  const NEW = ".thread-form[data-new]";
  const template = () => document.getElementById("new-thread");
  const rowOf = (line) => line.closest(".dr") || line;
  const fileOf = (line) => line.closest(".reviewed");
  const pathOf = (line) => pathIn(line.closest(".file-box"), line.dataset.side);
  const pathIn = (box, side) => decodeURIComponent(side === "old" ? box.dataset.oldPath : box.dataset.path);

  // ---- drafts: what was typed, and where ----

  const { drafts } = window.catherder;
  const PREFIX = `comment:${location.pathname.match(/tasks\/\d+/)?.[0] || ""}:`;
  const keyOf = (place) => PREFIX + JSON.stringify([place.path, place.side, place.line, place.first_line]);

  function placeOf(element) {
    const value = (name) => element.elements[name].value;
    return { path: value("path"), side: value("side"), line: value("line"), first_line: value("first_line") };
  }

  // ---- the form beside a line, on a file or on the whole ----

  const samePlace = (a, b) => a.path === b.path && a.side === b.side && a.line === b.line;

  function formAt(place) {
    return [...document.querySelectorAll(NEW)].find((one) => samePlace(placeOf(one), place)) || null;
  }

  function open(place, put, words) {
    if (!template()) return null;
    const there = formAt(place);
    if (there) { there.elements.text.focus(); return null; }
    const made = template().content.firstElementChild.cloneNode(true);
    for (const [name, value] of Object.entries(place)) made.elements[name].value = value;
    made.querySelector(".thread-where").textContent = words;
    made.dataset.draft = keyOf(place);
    put(made);
    drafts.restore(made);
    window.htmx?.process(made);
    return made;
  }

  function openBeside(line, first = null) {
    const last = line.dataset.line;
    const begins = first && Number(first) < Number(last) ? first : "";
    const place = { path: pathOf(line), side: line.dataset.side, line: last, first_line: begins };
    const before = place.side === "old" ? " before the change" : "";
    const words = `Comment on ${begins ? `lines ${begins} to ${last}` : `line ${last}`}${before}`;
    return open(place, (made) => rowOf(line).after(made), words);
  }

  function openOnFile(box) {
    const { side } = box.dataset;
    const place = { path: pathIn(box, side), side, line: "", first_line: "" };
    const file = box.querySelector("details");
    file.open = true;
    return open(place, (made) => file.querySelector("summary").after(made), "Comment on the whole file");
  }

  function openOnWhole() {
    const place = { path: "", side: "new", line: "", first_line: "" };
    const put = (made) => document.querySelector(".review-whole")?.append(made);
    return open(place, put, "Comment on the whole result");
  }

  let start = null; // the line from which a range begins

  function openFrom(line, event) {
    const sameFile = start && start.isConnected && fileOf(start) === fileOf(line);
    const isRange = event.shiftKey && sameFile && start.dataset.side === line.dataset.side;
    const [from, to] = isRange && Number(start.dataset.line) > Number(line.dataset.line) ? [line, start] : [start, line];
    openBeside(to, isRange ? from.dataset.line : null)?.elements.text.focus();
    start = line;
  }

  function close(element) {
    drafts.remove(element.dataset.draft);
    const file = element.closest(".reviewed") || element.closest(".file-box")?.querySelector("summary");
    element.remove();
    (file || document.querySelector("[data-comment-whole]"))?.focus();
  }

  function reopen(root) {
    if (!template()) return;
    for (const key of drafts.keys(PREFIX)) {
      const [path, side, line, first] = JSON.parse(key.slice(PREFIX.length));
      if (formAt({ path, side, line })) continue;
      if (!path) openOnWhole();
      else if (!line) {
        const box = [...root.querySelectorAll(".file-box")].find((one) => pathIn(one, side) === path);
        if (box) openOnFile(box);
      } else {
        const beside = [...root.querySelectorAll(LINE)]
          .find((one) => one.dataset.line === line && one.dataset.side === side && pathOf(one) === path);
        if (beside) openBeside(beside, first);
      }
    }
  }

  // A thread that comes with lines was shown elsewhere before: at the top of its file.
  function dropTwins(root) {
    for (const thread of root.querySelectorAll?.(".dl ~ .thread[id], .dr ~ .thread[id]") || []) {
      for (const twin of document.querySelectorAll(`#${thread.id}`)) if (twin !== thread) twin.remove();
    }
  }

  document.addEventListener("click", (event) => {
    const number = event.target.closest?.(`${LINE} .dn`);
    if (number && template()) openFrom(number.closest(".dl"), event);
    const file = event.target.closest?.("[data-comment-file]");
    if (file) openOnFile(file.closest(".file-box"))?.elements.text.focus();
    if (event.target.closest?.("[data-comment-whole]")) openOnWhole()?.elements.text.focus();
    const cancel = event.target.closest?.(".thread-form [data-close]");
    if (cancel) close(cancel.form);
  });
  document.addEventListener("htmx:load", (event) => { dropTwins(event.target.parentElement || event.target); reopen(document); });
  // A refusal that the portal words stands in the form. Others have no words, or a page of their own.
  function refuse(event) {
    const place = event.detail.requestConfig?.elt?.querySelector?.(".thread-refusal");
    if (!place) return;
    const words = document.createElement("p");
    words.className = "refusal";
    words.textContent = drafts.faultOf(event.detail.xhr);
    place.replaceChildren(words);
  }
  document.addEventListener("htmx:sendError", refuse);
  document.addEventListener("htmx:responseError", refuse);
  addEventListener("DOMContentLoaded", () => reopen(document));

  // ---- keys: arrows choose a line, Enter comments on it, Ctrl+Enter sends, Escape closes ----

  function choose(file, by) {
    const lines = [...file.querySelectorAll(LINE)];
    const here = lines.findIndex((line) => line.classList.contains("is-chosen"));
    const next = lines[here < 0 ? 0 : Math.min(lines.length - 1, Math.max(0, here + by))];
    lines[here]?.classList.remove("is-chosen");
    next?.classList.add("is-chosen");
    next?.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (field.matches?.(".thread-form textarea, #review-form textarea")) {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        field.form.requestSubmit(field.form.querySelector("button"));
      } else if (event.key === "Escape" && field.form.matches(NEW) && !field.value.trim()) {
        close(field.form);
      }
      return;
    }
    if (!field.matches?.(".reviewed") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choose(field, event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter") {
      const chosen = field.querySelector(`${LINE}.is-chosen`);
      if (!chosen) return;
      event.preventDefault();
      openFrom(chosen, event);
    }
  });

  // ---- what others write: it appears at its place, and leaves alone what is being typed ----

  const diffPage = () => document.querySelector(".diff-page");
  const isWriting = (element) => [...element.querySelectorAll("textarea")].some(
    (field) => field === document.activeElement || field.value !== field.defaultValue,
  );

  let known = null; // the page whose news are heard
  let fetching = false;
  let again = false;

  async function update() {
    if (fetching) { again = true; return; }
    const page = diffPage();
    if (!page) return;
    fetching = true;
    const html = await fetchText(page.dataset.threads);
    fetching = false;
    if (html !== null && page.isConnected) merge(page, html);
    if (again) { again = false; update(); }
  }

  async function fetchText(url) {
    try {
      const answer = await fetch(url, { headers: { "HX-Request": "true" } });
      return answer.ok ? await answer.text() : null;
    } catch { return null; } // the next notice tries again
  }

  function merge(page, html) {
    const news = new DOMParser().parseFromString(html, "text/html").querySelector("[data-head]");
    if (!news) return;
    if (news.dataset.head !== page.dataset.head) { codeChanged(page); return; }
    const there = new Set([...news.querySelectorAll(".thread")].map((thread) => thread.id));
    countThreads(news); // before its threads move into the page
    const restorePlace = keptPlace(page);
    const changed = [...news.children].map((one) => mergeThread(page, one)).filter(Boolean);
    for (const thread of page.querySelectorAll("article.thread")) {
      if (!there.has(thread.id) && !isWriting(thread)) thread.remove();
    }
    restorePlace();
    if (changed.length) announce(changed);
  }

  // What stands in the middle of the window, or is being typed in, does not move.
  function keptPlace(page) {
    const active = page.contains(document.activeElement) ? document.activeElement : null;
    const seen = active || document.elementFromPoint(innerWidth / 2, innerHeight / 2);
    const top = seen?.getBoundingClientRect().top;
    return () => { if (seen?.isConnected) scrollBy(0, seen.getBoundingClientRect().top - top); };
  }

  function mergeThread(page, given) {
    const thread = given.querySelector("article.thread");
    const old = document.getElementById(thread.id);
    if (!old) return insert(page, given, thread);
    if (old.dataset.version === thread.dataset.version) return null;
    if (isWriting(old)) {
      for (const part of [".thread-head", ".thread-comments"]) {
        old.querySelector(part)?.replaceWith(thread.querySelector(part));
      }
      old.dataset.version = thread.dataset.version;
      return old;
    }
    window.catherder.replaceKeepingFocus(old, () => old.replaceWith(thread));
    window.htmx?.process(thread);
    return thread;
  }

  function insert(page, given, thread) {
    const box = given.dataset.file ? document.getElementById(given.dataset.file) : null;
    const body = box?.querySelector(".file-body");
    if (box && !body) return null; // it comes with the lines of the file
    const { side, line } = given.dataset;
    const beside = line && body?.querySelector(`.dl[data-side="${side}"][data-line="${line}"]`);
    if (beside) {
      let last = rowOf(beside);
      while (last.nextElementSibling?.matches(".thread")) last = last.nextElementSibling;
      last.after(thread);
    } else if (body) body.prepend(thread);
    else page.querySelector(".threads-elsewhere")?.append(thread);
    window.htmx?.process(thread);
    return thread.isConnected ? thread : null;
  }

  function countThreads(news) {
    for (const row of document.querySelectorAll("a.tree-row")) {
      const anchor = row.getAttribute("href").slice(1);
      const open = news.querySelectorAll(`[data-file="${anchor}"] > .thread-open:not(.thread-draft)`).length;
      const count = row.querySelector(".tree-threads");
      count.textContent = open || "";
      count.title = open ? "Open threads" : "";
    }
  }

  function say(text, label, act) {
    const line = diffPage()?.querySelector(".diff-news");
    if (!line) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small";
    button.textContent = label;
    button.addEventListener("click", () => { line.hidden = true; act(); });
    line.replaceChildren(`${text} `, button);
    line.hidden = false;
  }

  function announce(threads) {
    const text = threads.length === 1 ? "1 thread was updated." : `${threads.length} threads were updated.`;
    say(text, "Show", () => {
      const fold = threads[0].closest("details.file");
      if (fold) fold.open = true;
      threads[0].tabIndex = -1;
      threads[0].focus({ preventScroll: true });
      threads[0].scrollIntoView({ block: "center" });
    });
  }

  function codeChanged(page) {
    if (!isWriting(page)) { document.body.dispatchEvent(new CustomEvent("catherder:diff")); return; }
    say("The code has changed since you opened this page. What you typed is kept.", "Show the new result",
      () => location.reload());
  }

  function listen() {
    const name = diffPage()?.dataset.state;
    if (!name || name === known) return;
    known = name;
    document.body.addEventListener(name, update);
    document.body.addEventListener("catherder:refresh", update);
  }
  addEventListener("DOMContentLoaded", listen);
  document.addEventListener("htmx:load", listen);
})();
