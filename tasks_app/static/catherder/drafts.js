// What was typed into a form stays in this browser until the portal says that it was stored. A draft is kept while
// it is typed. Sending marks it, and it is removed when the portal's cookie names the mark (web/middleware.py).
// Whatever goes wrong in between leaves it: a login that ended, a refusal, a fault, no network. Each user has drafts
// of their own. Passwords and other secrets are never kept, those in URLs either.
//
// A form has a draft if it has `data-draft`: a name among the forms that are sent to the same path, or a whole key with a
// colon. `none` says that it has none on purpose. Scripts with drafts of their own shape (cards, new tasks) use
// `window.catherder.drafts`. Django's admin pages say with attributes of the script who the user is, and which of their
// forms have a draft.
(() => {
  "use strict";
  const GIVEN = document.currentScript.dataset;
  const PREFIX = `catherder:draft:${GIVEN.user || document.documentElement.dataset.user}:`;
  const MARK = "stored_draft"; // a field, and the cookie
  const KEPT_FOR = 30 * 24 * 3600 * 1000;
  const SECRET = "[type=password], [type=file], [type=hidden], [autocomplete=one-time-code], [data-secret]";

  // ---- storing ----

  function read(key) {
    try {
      const draft = JSON.parse(localStorage.getItem(PREFIX + key));
      return draft && Date.now() - Date.parse(draft.at) < KEPT_FOR ? draft : null;
    } catch { return null; }
  }

  function write(key, value, marks = []) {
    const draft = { at: new Date().toISOString(), value, marks };
    try { localStorage.setItem(PREFIX + key, JSON.stringify(draft)); } catch { /* no room: the page itself still holds the text */ }
  }

  function remove(key) {
    try { localStorage.removeItem(PREFIX + key); } catch { /* nothing was kept then */ }
  }

  function keys(beginning = "") {
    try {
      return Object.keys(localStorage).filter((one) => one.startsWith(PREFIX + beginning)).map((one) => one.slice(PREFIX.length));
    } catch { return []; }
  }

  // Earlier versions kept drafts under other keys, and kept private keys.
  function removeOld() {
    try {
      for (const key of Object.keys(localStorage)) {
        const isOld = /^catherder:(draft:[0-9]+$|new-task:|comment:)/.test(key);
        const holdsSecret = key.startsWith("catherder:draft:") && localStorage.getItem(key).includes('"name":"secret"');
        if (isOld || holdsSecret) localStorage.removeItem(key);
      }
    } catch { /* nothing was kept then */ }
  }

  // ---- the portal's word ----

  const storedMarks = () => document.cookie.match(`(?:^|; )${MARK}=([^;]*)`)?.[1].split(".") || [];

  function removeStored() {
    const stored = storedMarks();
    for (const key of keys()) {
      const draft = read(key);
      if (!draft || draft.marks.some((mark) => stored.includes(mark))) remove(key);
    }
  }

  function newMark() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  const markOf = (form) => form?.querySelector?.(`:scope > [name=${MARK}]`);
  const unmark = (form) => markOf(form)?.remove();

  function mark(form) {
    const draft = read(keyOf(form));
    unmark(form);
    if (!draft) return;
    const field = document.createElement("input");
    Object.assign(field, { type: "hidden", name: MARK, value: newMark() });
    form.append(field);
    write(keyOf(form), draft.value, [...draft.marks, field.value]);
  }

  // ---- forms and their fields ----

  const fieldsOf = (form) => [...form.elements].filter((field) => field.name && field.matches("input, select:not([multiple]), textarea") && !field.matches(SECRET));

  function keyOf(form) {
    const name = form.dataset.draft || (GIVEN.forms && form.matches(GIVEN.forms) && "admin");
    if (!name || name === "none") return null;
    if (name.includes(":")) return name;
    return `form:${new URL(form.getAttribute("action") || location.pathname, location.href).pathname}:${name}`;
  }

  const isChoice = (field) => /^(radio|checkbox)$/.test(field.type);

  function isChanged(field) {
    if (field.matches("select")) return [...field.options].some((one) => one.selected !== one.defaultSelected) && field.value !== defaultOf(field);
    return isChoice(field) ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
  }

  // Without a default the first option is selected.
  const defaultOf = (select) => ([...select.options].find((one) => one.defaultSelected) || select.options[0])?.value;

  // A form that comes back refused has what was typed as its defaults: that stays in the draft, too.
  const sameField = (field, part) => part.name === field.name && (!isChoice(field) || part.value === field.value);

  // The URL of a repository may have a user and a password before its host.
  const withoutCredentials = (field) => field.matches("input") ? field.value.replace(/([a-z][a-z0-9+.-]*:\/\/)[^\s/@]*@/gi, "$1") : field.value;

  // A browser may say that a field changed when its form is taken away, which was stored then.
  const isStored = (form) => storedMarks().includes(markOf(form)?.value);

  function keep(form) {
    if (isStored(form)) return;
    const before = read(keyOf(form))?.value || [];
    const changed = fieldsOf(form).filter((field) => isChanged(field) || before.some((part) => sameField(field, part)));
    const parts = changed.map((field) => ({ name: field.name, value: withoutCredentials(field), on: isChoice(field) ? field.checked : undefined }));
    if (parts.length) write(keyOf(form), parts);
  }

  function restore(form) {
    const key = keyOf(form);
    const draft = key && Array.isArray(read(key)?.value) ? read(key) : null;
    if (!draft || fieldsOf(form).some(isChanged)) return;
    for (const { name, value, on } of draft.value) {
      const field = fieldsOf(form).find((one) => sameField(one, { name, value }));
      if (!field || (field.matches("select") && ![...field.options].some((one) => one.value === value))) continue;
      if (on === undefined) field.value = value;
      else field.checked = on;
    }
    if (!fieldsOf(form).some(isChanged)) return;
    for (let fold = form.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      if (!fold.matches(".menu, .confirm")) fold.open = true;
    }
    if (!form.matches(".thread-form, #review-form")) showNote(form, draft);
  }

  function showNote(form, draft) {
    const note = document.createElement("p");
    const button = document.createElement("button");
    note.className = "draft-note";
    note.setAttribute("role", "status");
    const at = new Date(draft.at).toLocaleString("sv").slice(0, 16);
    note.textContent = `What you typed here was restored. It was not saved (${at}).`;
    Object.assign(button, { type: "button", className: "small plain", textContent: "Discard" });
    button.addEventListener("click", () => {
      form.reset();
      remove(keyOf(form));
      note.remove();
      fieldsOf(form)[0]?.focus();
    });
    note.append(button);
    form.prepend(note);
  }

  // Cards and the form for a new task restore themselves.
  const isOwn = (form) => /^(question|new-task):/.test(form.dataset.draft || "");

  function restoreAll(root) {
    const forms = [...(root.querySelectorAll?.("form") || [])];
    if (root.matches?.("form")) forms.push(root);
    for (const form of forms) if (!isOwn(form)) restore(form);
  }

  // ---- what people do ----

  for (const type of ["input", "change"]) {
    document.addEventListener(type, ({ target }) => {
      if (target.form && !isOwn(target.form) && keyOf(target.form)) keep(target.form);
    });
  }
  document.addEventListener("submit", ({ target: form }) => {
    if (!keyOf(form) || form.dataset.sending || form.dataset.draft?.startsWith("new-task:")) return;
    if (!isOwn(form)) keep(form);
    mark(form);
  }, true);
  document.addEventListener("htmx:beforeSwap", removeStored);
  document.addEventListener("htmx:afterRequest", (event) => {
    unmark(event.detail.requestConfig?.elt);
    removeStored();
  });
  addEventListener("pageshow", (event) => { if (event.persisted) removeStored(); });
  removeOld();
  removeStored();
  addEventListener("DOMContentLoaded", () => restoreAll(document));
  document.addEventListener("htmx:load", (event) => restoreAll(event.target));

  // ---- why something was not stored ----

  // A whole page, or a text without markup, never replaces a part of this one.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { xhr } = event.detail;
    const isPart = /^text\/html/.test(xhr.getResponseHeader("Content-Type") || "") && !/^\s*<!doctype/i.test(xhr.responseText);
    if (xhr.status < 400 || isPart) return;
    event.detail.shouldSwap = false;
    event.detail.isError = true;
  });

  function faultOf(xhr) {
    const text = /^text\/plain/.test(xhr.getResponseHeader("Content-Type") || "") && xhr.responseText.length < 600 && xhr.responseText.trim();
    if (text) return `${text} Your text is kept here.`;
    return {
      0: "The portal could not be reached. Nothing was sent, and your text is kept here. Try again.",
      403: "The portal refused this. Your text is kept here. Reload the page, then send it again.",
      404: "This was removed in the meantime. Your text is kept here. Reload the page.",
      413: "This is too long. Your text is kept here. Shorten it, then send it again.",
      429: "There were too many requests. Your text is kept here. Wait a minute, then send it again.",
      503: "The portal is unavailable at the moment. Your text is kept here. Wait a minute, then send it again.",
    }[xhr.status] || "An internal error occurred. Your text is kept here. Try again: nothing is stored twice.";
  }

  (window.catherder ??= {}).drafts = { read, write, remove, removeStored, keys, restore, faultOf };
})();
