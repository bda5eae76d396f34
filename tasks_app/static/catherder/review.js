// Comments on the lines of a diff: a click on a line's number, or Enter on the line that the arrow keys chose,
// opens a form beside it; with shift it is about several lines. What is typed survives a reload.
(() => {
  "use strict";
  const LINE = ".reviewed .dl[data-line]";
  const template = () => document.getElementById("new-thread");
  const form = (line) => {
    const next = line.nextElementSibling;
    return next?.matches(".thread-form") ? next : null;
  };

  // ---- drafts: what was typed beside which line ----

  const PREFIX = `catherder:comment:${location.pathname.match(/tasks\/\d+/)?.[0] || ""}:`;
  const keyOf = (place) => PREFIX + JSON.stringify([place.path, place.side, place.line, place.first_line]);

  function placeOf(element) {
    const value = (name) => element.elements[name].value;
    return { path: value("path"), side: value("side"), line: value("line"), first_line: value("first_line") };
  }

  function keep(element) {
    const text = element.elements.text.value;
    try {
      if (text.trim()) localStorage.setItem(keyOf(placeOf(element)), text);
      else localStorage.removeItem(keyOf(placeOf(element)));
    } catch { /* then it is not kept */ }
  }

  function kept() {
    try {
      return Object.keys(localStorage).filter((key) => key.startsWith(PREFIX))
        .map((key) => ({ place: JSON.parse(key.slice(PREFIX.length)), text: localStorage.getItem(key) }));
    } catch { return []; }
  }

  // ---- the form beside a line ----

  const fileOf = (line) => line.closest(".reviewed");
  const pathOf = (line) =>
    decodeURIComponent(line.dataset.side === "old" ? fileOf(line).dataset.oldPath : fileOf(line).dataset.path);

  function open(line, { first = null, text = "" } = {}) {
    if (!template() || form(line)) { form(line)?.elements.text.focus(); return null; }
    const made = template().content.firstElementChild.cloneNode(true);
    const last = line.dataset.line;
    const begins = first && Number(first) < Number(last) ? first : "";
    const place = { path: pathOf(line), side: line.dataset.side, line: last, first_line: begins };
    for (const [name, value] of Object.entries(place)) made.elements[name].value = value;
    const before = place.side === "old" ? " before the change" : "";
    made.querySelector(".thread-where").textContent =
      `Comment on ${begins ? `lines ${begins} to ${last}` : `line ${last}`}${before}`;
    made.elements.text.value = text;
    line.after(made);
    window.htmx?.process(made);
    return made;
  }

  let start = null; // the line from which a range begins

  function openFrom(line, event) {
    const sameFile = start && start.isConnected && fileOf(start) === fileOf(line);
    const isRange = event.shiftKey && sameFile && start.dataset.side === line.dataset.side;
    const [from, to] = isRange && Number(start.dataset.line) > Number(line.dataset.line) ? [line, start] : [start, line];
    open(to, { first: isRange ? from.dataset.line : null })?.elements.text.focus();
    start = line;
  }

  function close(element) {
    element.elements.text.value = "";
    keep(element);
    const file = element.closest(".reviewed");
    element.remove();
    file?.focus();
  }

  function reopen(root) {
    for (const { place: [path, side, line, first], text } of kept()) {
      const beside = [...root.querySelectorAll(LINE)]
        .find((one) => one.dataset.line === line && one.dataset.side === side && pathOf(one) === path);
      if (beside && !form(beside)) open(beside, { first, text });
    }
  }

  document.addEventListener("click", (event) => {
    const number = event.target.closest?.(`${LINE} .dn`);
    if (number && template()) openFrom(number.closest(".dl"), event);
    const cancel = event.target.closest?.(".thread-form [data-close]");
    if (cancel) close(cancel.form);
  });
  document.addEventListener("input", (event) => {
    const typed = event.target.closest?.(".reviewed > .thread-form");
    if (typed) keep(typed);
  });
  document.addEventListener("htmx:load", (event) => reopen(event.target));
  document.addEventListener("htmx:beforeSwap", (event) => {
    const sent = event.detail.requestConfig?.elt;
    if (!sent?.matches?.(".reviewed > .thread-form") || event.detail.xhr.status !== 200) return;
    try { localStorage.removeItem(keyOf(placeOf(sent))); } catch { /* it was not kept */ }
  });
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
      } else if (event.key === "Escape" && field.form.matches(".reviewed > .thread-form") && !field.value.trim()) {
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

  // ---- the diff does not fetch itself anew under the hands of somebody who writes ----

  const isWriting = (place) => [...place.querySelectorAll("textarea")].some(
    (field) => field === document.activeElement || field.value !== field.defaultValue,
  );
  document.addEventListener("htmx:beforeRequest", (event) => {
    const { elt, requestConfig } = event.detail;
    const byNotice = requestConfig.triggeringEvent?.type?.startsWith("catherder:");
    if (elt.id === "diff" && byNotice && isWriting(elt)) event.preventDefault();
  });
})();
