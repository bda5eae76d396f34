// What stays when a part of the page is fetched again: open folds, what was typed and not sent, and the focus.
// htmx gives the focus back to what has an id; the other links and buttons are found by what they do.
(() => {
  "use strict";
  const byId = (id) => document.getElementById(id);
  const all = (root, selector) => [...root.querySelectorAll(selector)];
  const FIELDS = "input:not([type=hidden], [type=password], [type=file]), select, textarea";

  // ---- elements that do the same are the same one ----

  function describe(element) {
    const value = /^(radio|checkbox|submit|button)$/.test(element.type) ? element.value : "";
    const does = [element.id, element.getAttribute("href"), element.name, value].map((one) => one || "");
    const action = element.form?.getAttribute("action") || "";
    const said = does.some(Boolean) ? "" : element.getAttribute("aria-label") || element.textContent.trim();
    return [element.tagName, ...does, action, said].join("\n");
  }

  const twinsOf = (root, element, words) => all(root, element.tagName).filter((one) => describe(one) === words);

  // The same of several equal ones, as far as there are still so many.
  function finder(root, element) {
    const words = describe(element);
    const place = twinsOf(root, element, words).indexOf(element);
    return (newRoot) => {
      const twins = twinsOf(newRoot, element, words);
      return twins[Math.min(place, twins.length - 1)];
    };
  }

  // ---- what was typed: it stays as long as the portal still says what it said before ----

  const stateOf = (field, initial) => {
    if (field.matches("select")) return [...field.options].map((one) => (initial ? one.defaultSelected : one.selected)).join();
    if (/^(radio|checkbox)$/.test(field.type)) return String(initial ? field.defaultChecked : field.checked);
    return initial ? field.defaultValue : field.value;
  };

  function write(field, given) {
    if (field.matches("select")) [...field.options].forEach((one, place) => { one.selected = given.selected[place]; });
    else if (/^(radio|checkbox)$/.test(field.type)) field.checked = given.checked;
    else field.value = given.value;
  }

  // Cards keep their own drafts, and rows of tasks their selection.
  const isTyped = (field) => stateOf(field, false) !== stateOf(field, true) && !field.closest("[data-question]")
    && field.getAttribute("form") !== "bulk";

  function typedIn(root) {
    return all(root, FIELDS).filter(isTyped).map((field) => ({
      find: finder(root, field),
      before: stateOf(field, true),
      given: { value: field.value, checked: field.checked, selected: [...(field.options || [])].map((one) => one.selected) },
    }));
  }

  // ---- before and after ----

  let kept = [];

  function keep(root, sent) {
    const active = document.activeElement;
    const { previousElementSibling: before, parentElement: parent } = root;
    return {
      // What is there now: the same element, or what took its place.
      now: () => (root.isConnected ? root : before?.isConnected ? before.nextElementSibling || parent : parent.firstElementChild || parent),
      folds: all(root, "details[id][open]").map((fold) => fold.id),
      typed: sent ? [] : typedIn(root),
      focused: root.contains(active) && active !== root ? finder(root, active) : root === active ? () => null : undefined,
    };
  }

  function putBack({ now, folds, typed, focused }) {
    const root = now();
    for (const id of folds) { const fold = byId(id); if (fold) fold.open = true; }
    for (const { find, before, given } of typed) {
      const field = find(root);
      if (field && stateOf(field, true) === before) write(field, given);
    }
    if (focused && document.activeElement === document.body) focus(focused(root), root);
  }

  // What had the focus is gone: the Tab key goes on from where it was.
  function focus(element, root) {
    element?.focus({ preventScroll: true });
    if (document.activeElement !== document.body) return;
    const place = root.isConnected && root !== document.body ? root : byId("main");
    if (!place.hasAttribute("tabindex")) place.tabIndex = -1;
    place.focus({ preventScroll: true });
  }

  const isForm = (element) => Boolean(element?.matches?.("form"));

  document.addEventListener("htmx:beforeSwap", (event) => {
    kept.push(keep(event.detail.target, isForm(event.detail.requestConfig?.elt)));
  });
  document.addEventListener("htmx:oobBeforeSwap", (event) => { kept.push(keep(event.detail.target, false)); });
  document.addEventListener("htmx:afterRequest", () => {
    kept.forEach(putBack);
    kept = [];
  });

  // Other scripts replace parts, too.
  window.catherder.replaceKeepingFocus = (old, put) => {
    const one = keep(old, true);
    put();
    putBack(one);
  };
})();
