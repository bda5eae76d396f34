// The question card: drafts that survive a reload, keys, and an own text field for "something else".
(() => {
  "use strict";
  const sending = new Set();
  const key = (id) => `catherder:draft:${id}`;
  const cardOf = (element) => element?.closest?.("[data-question]");
  const idOf = (card) => card.dataset.question;
  const openCards = () => [...document.querySelectorAll(".card-open")].filter((card) => formOf(card));
  const formOf = (card) => card.querySelector("form.answer");
  const choicesOf = (item) => [...item.querySelectorAll(".choice > input")];

  // ---- drafts: what was typed and chosen, by question ----

  function fieldsOf(form) {
    return [...form.elements].filter((field) => /^(item-\d+(-other)?|notes)$/.test(field.name || ""));
  }

  function written(form) {
    return fieldsOf(form).map((field) =>
      field.type === "radio" || field.type === "checkbox"
        ? { name: field.name, value: field.value, on: field.checked }
        : { name: field.name, text: field.value });
  }

  const isBlank = (draft) => draft.every((part) => !part.on && !(part.text || "").trim());

  function keep(card) {
    const draft = written(formOf(card));
    try {
      if (isBlank(draft)) localStorage.removeItem(key(idOf(card)));
      else localStorage.setItem(key(idOf(card)), JSON.stringify(draft));
    } catch { /* no room or no permission: the page itself still holds the text */ }
  }

  function kept(id) {
    try { return JSON.parse(localStorage.getItem(key(id))) || []; } catch { return []; }
  }

  function forget(id) {
    try { localStorage.removeItem(key(id)); } catch { /* nothing was kept then */ }
  }

  function restore(card) {
    const form = formOf(card);
    if (!isBlank(written(form))) return;
    for (const part of kept(idOf(card))) {
      for (const field of fieldsOf(form)) {
        if (field.name !== part.name) continue;
        if ("text" in part) field.value = part.text;
        else if (field.value === part.value) field.checked = part.on;
      }
    }
  }

  // ---- the state of a card ----

  function isAnswered(item) {
    const own = item.querySelector(".own-text");
    const text = own && !own.disabled && own.value.trim();
    return Boolean(text || choicesOf(item).some((choice) => choice.checked && choice.value));
  }

  function settle(card) {
    const items = [...card.querySelectorAll(".item")];
    for (const own of card.querySelectorAll(".choice-own")) {
      own.querySelector(".own-text").disabled = !own.querySelector("input").checked;
    }
    const done = items.map(isAnswered);
    card.querySelectorAll(".dots .dot").forEach((dot, place) => dot.classList.toggle("is-answered", done[place]));
    const said = card.querySelector(".dots-said");
    const words = `${done.filter(Boolean).length} of ${items.length} answered`;
    if (said && said.textContent !== words) said.textContent = words;
  }

  function prepare(card) {
    if (card.dataset.ready || !formOf(card)) return;
    card.dataset.ready = "yes";
    restore(card);
    settle(card);
  }

  // Somebody else was first: what was typed here and not sent stays in reach.
  function showKept(card) {
    const id = idOf(card);
    const place = card.querySelector(".kept");
    const draft = kept(id);
    if (place && place.hidden && !sending.has(id) && !isBlank(draft)) {
      const parts = draft.filter((part) => (part.on && part.value) || (part.text || "").trim());
      place.querySelector("textarea").value = parts.map((part) => part.text ?? part.value).join("\n");
      place.hidden = false;
    }
    forget(id);
  }

  function look() {
    for (const card of document.querySelectorAll("[data-question]")) {
      if (card.dataset.state === "open") prepare(card);
      else if (card.dataset.state === "answered") showKept(card);
    }
  }

  document.addEventListener("input", (event) => {
    const card = cardOf(event.target);
    if (!card || !formOf(card)) return;
    settle(card);
    keep(card);
    const own = event.target.closest(".choice-own");
    if (own && event.target.matches(":checked")) own.querySelector(".own-text").focus();
  });

  // ---- sending: while an answer is under way, the card is not fetched by anything else ----

  // What asked: htmx overwrites `detail.elt` with the element on which it tells the event.
  const askerOf = (event) => event.detail.requestConfig?.elt || event.detail.elt;
  const isOwnFetch = (event) => askerOf(event)?.matches?.("[data-question]");

  document.addEventListener("htmx:beforeRequest", (event) => {
    const card = cardOf(askerOf(event));
    if (!card) return;
    if (!isOwnFetch(event)) sending.add(idOf(card));
    else if (sending.has(idOf(card))) event.preventDefault();
  });

  document.addEventListener("htmx:beforeSwap", (event) => {
    const card = cardOf(askerOf(event));
    if (!card) return;
    if (isOwnFetch(event)) {
      if (sending.has(idOf(card))) event.detail.shouldSwap = false;
    } else if (event.detail.xhr.status === 200) {
      forget(idOf(card));
    }
  });

  document.addEventListener("htmx:sendError", (event) => {
    const place = cardOf(askerOf(event))?.querySelector(".refusal-place");
    if (!place) return;
    const words = document.createElement("p");
    words.className = "refusal";
    words.textContent = "The portal could not be reached. Nothing was sent; what you typed is kept here. Try again.";
    place.replaceChildren(words);
  });

  document.addEventListener("htmx:afterRequest", (event) => {
    const card = cardOf(askerOf(event));
    if (card && !isOwnFetch(event)) sending.delete(idOf(card));
  });

  // ---- keys ----

  const isText = (element) => element?.matches?.("textarea, select, input:not([type=radio], [type=checkbox])");

  function itemInHand() {
    const focused = document.activeElement?.closest?.(".item");
    if (focused) return focused;
    const card = cardOf(document.activeElement) || openCards()[0];
    if (!card) return null;
    const items = [...card.querySelectorAll(".item:not(:disabled)")];
    return items.find((item) => !isAnswered(item)) || items[0];
  }

  function choose(number) {
    const choice = choicesOf(itemInHand() || document.createElement("div"))[number - 1];
    if (!choice) return false;
    choice.focus();
    choice.click();
    return true;
  }

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey) return;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      const form = event.target.closest?.("form.answer");
      if (form) { event.preventDefault(); form.requestSubmit(); }
    } else if (event.ctrlKey || event.metaKey) {
      return;
    } else if (event.key === "Escape" && isText(event.target) && cardOf(event.target)) {
      const choice = event.target.closest(".choice")?.querySelector("input");
      if (choice) choice.focus();
      else event.target.blur();
    } else if (/^[1-9]$/.test(event.key) && !isText(event.target) && choose(Number(event.key))) {
      event.preventDefault();
    }
  });

  addEventListener("DOMContentLoaded", look);
  document.addEventListener("htmx:load", look);
})();
