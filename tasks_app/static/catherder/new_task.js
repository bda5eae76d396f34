// The form for a new task: its text and the settings beside it are kept the same, drafts survive a reload,
// and the preview takes the place of the text. Without this script the server puts the two together.
(() => {
  "use strict";
  const FRONT = /^---[ \t]*\n((?:.*\n)*?)(?:---|\.\.\.)[ \t]*(?:\n|$)/;
  const KEYS = { title: "title", pipeline: "pipeline", threshold: "interactionThreshold", model: "model", resume: "resume", priority: "priority", ask: "ask" };
  const LINE = (key) => new RegExp(`^${key}:[ \\t]*(.*)$`);
  const PLAIN = /^[A-Za-z][A-Za-z0-9._\/-]*$/;
  const WORDS = /^(y|n|yes|no|true|false|on|off|null|nan|inf)$/i;

  const form = document.getElementById("new-task");
  if (!form) return;
  const text = form.elements.text;
  const note = document.getElementById("draft-note");
  const fieldsOf = (name) => [...form.querySelectorAll(`[name=${name}]`)];

  // ---- front matter: single lines `key: value`, which is all that the form writes ----

  function unquoted(value) {
    const bare = value.trim();
    if (bare.startsWith('"')) { try { return JSON.parse(bare); } catch { return null; } }
    if (bare.startsWith("'")) return bare.endsWith("'") && bare.length > 1 ? bare.slice(1, -1).replaceAll("''", "'") : null;
    return bare.replace(/[ \t]+#.*$/, "");
  }

  const quoted = (value) => (/^\d$/.test(value) || (PLAIN.test(value) && !WORDS.test(value)) ? value : JSON.stringify(value));

  // The names of `ask` are a list in the text, and stand with commas between them in the field.
  const namesIn = (list) => list.replace(/^\[|\]$/g, "").split(",").map(unquoted);
  const asList = (names) => `[${names.split(",").map((name) => name.trim()).filter(Boolean).map(quoted).join(", ")}]`;

  function readSetting(name) {
    const inside = text.value.replace(/\r\n/g, "\n").match(FRONT);
    const found = inside?.[1].split("\n").map((line) => line.match(LINE(KEYS[name]))).find(Boolean);
    if (!found) return "";
    if (name !== "ask") return unquoted(found[1]);
    const names = namesIn(found[1].trim());
    return names.includes(null) ? null : names.join(", ");
  }

  function writeSetting(name, value) {
    const whole = text.value.replace(/\r\n/g, "\n");
    const inside = whole.match(FRONT);
    const lines = (inside?.[1] || "").split("\n").slice(0, -1);
    const at = lines.findIndex((line) => LINE(KEYS[name]).test(line));
    const line = `${KEYS[name]}: ${name === "ask" ? asList(value) : quoted(value)}`;
    if (at >= 0) lines.splice(at, 1, ...(value ? [line] : []));
    else if (value) lines.push(line);
    const rest = inside ? whole.slice(inside[0].length) : whole;
    text.value = lines.length ? `---\n${lines.join("\n")}\n---\n${rest}` : rest;
  }

  function setFields(name, value) {
    if (value === null) return;
    for (const field of fieldsOf(name)) {
      if (field.type === "radio") field.checked = field.value === value;
      else if (field !== document.activeElement && field.value !== value) field.value = value;
    }
  }

  function updateFieldsFromText() {
    if (isFolder()) return;
    for (const name of Object.keys(KEYS)) setFields(name, readSetting(name));
  }

  const isFolder = () => form.querySelector("[name=kind]:checked")?.value === "folder";

  // ---- drafts, one for each project ----

  const { drafts } = window.catherder;
  const draftKey = () => `new-task:${form.elements.project.value}`;
  const currentDraft = () => ({
    text: text.value,
    folder: form.elements.folder.value,
    ask: form.elements.ask.value, // of a folder; that of a task stands in its text
    kind: isFolder() ? "folder" : "task",
    key: form.elements.form_key.value,
    at: new Date().toISOString(),
  });
  const isBlank = (draft) => !draft || !(draft.text || draft.folder || "").trim();
  let offered = null; // an earlier draft, which is kept as `previous` of the current one until somebody decides

  const readDraft = () => drafts.read(draftKey())?.value;
  const deleteDraft = () => drafts.remove(draftKey());

  function saveDraft() {
    const draft = isBlank(currentDraft()) ? offered : { ...currentDraft(), previous: offered };
    if (draft) drafts.write(draftKey(), draft);
    else deleteDraft();
  }

  function showNote(words, canRestore) {
    note.querySelector("span").textContent = words;
    note.querySelector("[data-draft=restore]").hidden = !canRestore;
    note.hidden = false;
  }

  function restore(draft) {
    text.value = draft.text || "";
    form.elements.folder.value = draft.folder || "";
    form.elements.ask.value = draft.ask || "";
    for (const radio of fieldsOf("kind")) radio.checked = radio.value === draft.kind;
    updateFieldsFromText();
    offered = draft.previous || null;
    saveDraft(); // under the key of this form, which tells when it was sent
  }

  const savedAt = (draft) => new Date(draft.at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });

  function offerDraft() {
    let draft = readDraft();
    while (draft && form.dataset.sent.split(" ").includes(draft.key)) draft = draft.previous;
    if (isBlank(draft)) { deleteDraft(); return; }
    const current = currentDraft();
    if (["text", "folder", "ask"].every((name) => (draft[name] || "") === current[name])) return;
    if (form.dataset.filled === undefined && isBlank(current)) restore(draft);
    else offered = draft;
    if (offered) showNote(`There is a draft from ${savedAt(offered)}.`, true);
    else showNote(`Your draft from ${savedAt(draft)} was restored.`, false);
  }

  note.addEventListener("click", (event) => {
    const chosen = event.target.dataset?.draft;
    if (!chosen) return;
    if (chosen === "restore") restore(offered);
    else {
      if (!offered) { text.value = form.elements.folder.value = form.elements.ask.value = ""; updateFieldsFromText(); }
      offered = offered?.previous || null;
      saveDraft();
    }
    note.hidden = !offered;
    if (offered) showNote(`There is a draft from ${savedAt(offered)}.`, true);
    (isFolder() ? form.elements.folder : text).focus();
  });

  // ---- the preview in place of the text ----

  function showEditor(which) {
    form.classList.toggle("is-preview", which === "preview");
    for (const tab of form.querySelectorAll("[data-editor]")) {
      tab.setAttribute("aria-pressed", String(tab.dataset.editor === which));
    }
    if (which === "write") text.focus();
  }

  // ---- what people do ----

  form.addEventListener("input", (event) => {
    const name = event.target.name;
    if (event.target === text) updateFieldsFromText();
    else if (name in KEYS && !isFolder()) writeSetting(name, event.target.value);
    saveDraft();
  });
  form.addEventListener("click", (event) => {
    const tab = event.target.closest("[data-editor]");
    if (tab) showEditor(tab.dataset.editor);
    const folder = event.target.closest("[data-pick-folder]");
    if (folder) {
      event.preventDefault();
      form.elements.folder.value = folder.dataset.pickFolder;
      form.elements.folder.dispatchEvent(new CustomEvent("catherder:picked"));
      saveDraft();
    }
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit(form.querySelector(".primary[name=start]"));
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "of-project") updateFieldsFromText();
    if (event.detail.target.id === "of-project" || event.detail.target.id === "files") {
      document.getElementById("pick").elements.project.value = form.elements.project.value;
    }
  });

  offerDraft();
  updateFieldsFromText();
})();
