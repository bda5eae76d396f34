// The question card: drafts that survive a reload, keys, and an own text field for "something else".
// Its forms (an answer, no answer, a decision) send only what is sent on purpose.
(() => {
  "use strict";
  const sending = new Set(); // questions with an answer under way
  const pressed = new Set(); // those that were to be sent once more meanwhile, and not changed since
  const outdated = new Set(); // those that changed meanwhile
  const unsent = new Map(); // own words that the answer under way leaves out, by question
  const { drafts } = window.catherder;
  const key = (id) => `question:${id}`;
  const cardOf = (element) => element?.closest?.("[data-question]");
  const idOf = (card) => card.dataset.question;
  const openCards = () => [...document.querySelectorAll(".card-open")].filter((card) => formOf(card));
  const formOf = (card) => card.querySelector("form.answer");
  const answersOf = (card) => card.querySelectorAll("form:has(textarea)");
  const choicesOf = (item) => [...item.querySelectorAll(".choice > input")];

  // ---- drafts: what was typed and chosen, by question ----

  function fieldsOf(card) {
    const fields = [...answersOf(card)].flatMap((form) => [...form.elements]);
    return fields.filter((field) => /^(item-\d+(-other)?|notes|taken_from|remember(-paths|-item-\d+)?|statement(-\d+)?|stance-\d+(-paths)?)$/.test(field.name || ""));
  }

  function written(card) {
    return fieldsOf(card).map((field) =>
      field.type === "radio" || field.type === "checkbox"
        ? { name: field.name, value: field.value, on: field.checked, ...asBefore(field) }
        : { name: field.name, text: field.value });
  }

  // How far an answer holds is chosen from the start: as long as it is the same, nothing was entered.
  const asBefore = (field) => field.name.startsWith("remember") ? { same: field.checked === field.defaultChecked } : {};
  const isBlank = (draft) => draft.every((part) => part.same ?? (!part.on && !(part.text || "").trim()));

  function keep(card) {
    const draft = written(card);
    if (isBlank(draft)) drafts.remove(key(idOf(card)));
    else drafts.write(key(idOf(card)), draft);
  }

  const kept = (id) => drafts.read(key(id))?.value || [];

  // What the card has already, as after Undo, stays: only own words are added to it.
  function restore(card) {
    const isNew = isBlank(written(card));
    for (const part of kept(idOf(card))) {
      for (const field of fieldsOf(card)) {
        if (field.name !== part.name) continue;
        if ("text" in part && isOwnWords(part)) field.value = joined(field.value, part.text);
        else if (!isNew) continue;
        else if ("text" in part) field.value = part.text;
        else if (field.value === part.value && (part.on || field.type === "checkbox")) field.checked = part.on;
      }
    }
    for (const own of card.querySelectorAll(".choice-own")) {
      const isChosen = choicesOf(own.closest(".item")).some((choice) => choice.checked);
      if (!isChosen && own.querySelector(".own-text").value.trim()) own.querySelector("input").checked = true;
    }
  }

  // ---- own words that an answer leaves behind: they are kept until they are sent or discarded ----

  const isOwnWords = (part) => /^(item-\d+-other|notes)$/.test(part.name) && Boolean((part.text || "").trim());
  const joined = (text, more) => more.includes(text) ? more : text.includes(more) ? text : `${text}\n${more}`;

  // An option was chosen instead, or the question was skipped, which sends the notes alone.
  function unsentWords(card, isSkipped) {
    const sent = fieldsOf(card).filter((field) => !field.disabled && !(isSkipped && field.name !== "notes"));
    return written(card).filter((part) => isOwnWords(part) && !sent.some((field) => field.name === part.name));
  }

  function addToDraft(id, words) {
    const draft = kept(id);
    const before = JSON.stringify(draft);
    for (const part of words) {
      const same = draft.find((one) => one.name === part.name);
      if (same) same.text = joined(same.text, part.text);
      else draft.push(part);
    }
    if (JSON.stringify(draft) !== before) drafts.write(key(id), draft);
  }

  // All pages of a browser have one draft: another one may have stored its own, or sent it.
  function keepWords(card) {
    if (card.dataset.state === "open" && card.dataset.ready) addToDraft(idOf(card), written(card).filter(isOwnWords));
  }

  addEventListener("storage", (event) => {
    for (const card of openCards()) if (event.key?.endsWith(`:${key(idOf(card))}`)) keepWords(card);
  });

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
    const isGiven = !isBlank(written(card)); // an answer that was taken back is nowhere else any more
    restore(card);
    if (isGiven) keep(card);
    settle(card);
  }

  // What was typed here and not sent stays in reach until it is discarded.
  function showKept(card) {
    const place = card.querySelector(".kept");
    const draft = kept(idOf(card));
    if (!place || isBlank(draft)) return;
    const typed = draft.filter((part) => !/^(taken_from|remember|statement|stance)/.test(part.name));
    const texts = typed.filter((part) => (part.on && part.value) || (part.text || "").trim()).map((part) => part.text ?? part.value);
    const left = texts.filter((text) => !isInAnswer(card, text));
    if (!left.length) return drafts.remove(key(idOf(card)));
    const field = place.querySelector("textarea");
    field.value = left.reduce(joined, field.value);
    place.hidden = false;
  }

  // Another page of this browser may have sent it. Of several options the answer has a list.
  function isInAnswer(card, text) {
    const plain = (words) => words.replace(/[\s`*_]+/g, "");
    const said = [...card.querySelectorAll(".answers dd:not(.answer-means)")].map((one) => `,${plain(one.textContent)},`);
    return said.some((one) => one.includes(`,${plain(text)},`));
  }

  document.addEventListener("click", (event) => {
    const place = event.target.closest("[data-discard]")?.closest(".kept");
    if (!place) return;
    const card = cardOf(place);
    drafts.remove(key(idOf(card)));
    carried.delete(idOf(card));
    place.hidden = true;
    card.focus({ preventScroll: true });
  });

  // A card of somebody else's answer changes again: the agent gets the answer, or it is taken back. What was
  // typed here, and why it was not accepted, stays.
  const carried = new Map();

  function carry(card) {
    keepWords(card);
    // Another page of this browser may have sent the same draft, and the portal's word that it was stored may still be
    // on its way: the mark would remove these words, too.
    if (kept(idOf(card)).length) drafts.write(key(idOf(card)), kept(idOf(card)));
    const field = card.querySelector(".kept:not([hidden]) textarea");
    if (field) carried.set(idOf(card), { text: field.value, refusal: card.querySelector(":scope > .refusal") });
  }

  function putBack(card) {
    const given = carried.get(idOf(card));
    if (!given || !carried.delete(idOf(card))) return;
    const place = card.querySelector(".kept");
    if (!place) return; // open again: its draft is in its fields
    place.querySelector("textarea").value = given.text;
    place.hidden = false;
    if (given.refusal) place.before(given.refusal);
  }

  // ---- taking an answer back: the button counts down and then leaves ----

  function countDown(form) {
    if (form.dataset.ready) return;
    form.dataset.ready = "yes";
    const button = form.querySelector("button"), left = form.querySelector(".undo-left");
    const end = performance.now() + 1000 * Number(form.dataset.undo);
    const timer = setInterval(() => {
      const seconds = Math.ceil((end - performance.now()) / 1000);
      if (seconds > 0 && form.isConnected) {
        if (left.textContent !== `(${seconds} s)`) left.textContent = `(${seconds} s)`;
        return;
      }
      clearInterval(timer);
      if (document.activeElement === button) cardOf(form)?.focus({ preventScroll: true });
      form.classList.add("is-over");
      cardOf(form)?.style.removeProperty("min-height"); // of the form that it no longer becomes (arrivals.js)
      button.disabled = true;
    }, 200);
  }

  function undo() {
    const button = [...document.querySelectorAll(".undo button:not(:disabled)")].pop();
    button?.click();
    return Boolean(button);
  }

  function look() {
    document.querySelectorAll("form.undo[data-undo]").forEach(countDown);
    for (const card of document.querySelectorAll("[data-question]")) {
      putBack(card);
      if (card.dataset.state === "open") prepare(card);
      else if (card.dataset.state !== "withdrawn") showKept(card); // a withdrawn one may be asked again
    }
  }

  document.addEventListener("input", (event) => {
    const card = cardOf(event.target);
    if (!card || !formOf(card)) return;
    pressed.delete(idOf(card));
    settle(card);
    keep(card);
    event.target.closest("fieldset, .item, .notes")?.querySelector(".refusal-place")?.replaceChildren();
    event.target.removeAttribute("aria-invalid");
    const own = event.target.closest(".choice-own");
    if (own && event.target.matches(":checked")) own.querySelector(".own-text").focus();
  });

  // ---- earlier answers: filled in, and sent only on purpose ----

  // A card that was asked before as a whole is filled in as a whole, apart from what has an answer already.
  function use(button) {
    fillIn(button);
    for (const item of cardOf(button).querySelectorAll(".item")) {
      const nearest = item.querySelector("[data-use]");
      if (nearest?.dataset.use === button.dataset.use && !isAnswered(item)) fillIn(nearest);
    }
    return true;
  }

  function fillIn(button) {
    const card = cardOf(button);
    for (const [place, entered] of Object.entries(JSON.parse(button.dataset.entered))) {
      const item = card.querySelector(`.item[data-item="${place}"]`);
      for (const choice of choicesOf(item)) {
        choice.checked = choice.value ? entered.chosen.includes(choice.value) : Boolean(entered.other);
      }
      const own = item.querySelector(".own-text");
      if (own) own.value = entered.other;
    }
    const notes = card.querySelector("[name=notes]");
    notes.value = notes.value.trim() ? notes.value : button.dataset.notes;
    card.querySelector("[name=taken_from]").value = button.dataset.use;
    for (const said of button.closest(".item").querySelectorAll(".earlier-said")) said.textContent = "";
    button.parentElement.querySelector(".earlier-said").textContent = "Filled in. Nothing is sent yet.";
    settle(card);
    button.closest(".item").dispatchEvent(new Event("input", { bubbles: true })); // as if it was entered by hand
  }

  // Of the question in hand, else of the first one without an answer.
  function useNearest() {
    const card = cardOf(document.activeElement) || openCards()[0];
    const button = itemInHand()?.querySelector("[data-use]") || card?.querySelector("[data-use]");
    return Boolean(button && use(button));
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-use]");
    if (!button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    use(button);
  });

  // ---- sending: while an answer is under way, the card is not fetched by anything else ----

  // What asked: htmx overwrites `detail.elt` with the element on which it tells the event.
  const askerOf = (event) => event.detail.requestConfig?.elt || event.detail.elt;
  // Parts of a card fetch themselves as well; only its forms send an answer.
  const isAnswer = (event) => askerOf(event)?.matches?.("[data-question] form");

  // Approve, Deny and Skip stand outside of their form, where htmx does not see them.
  document.addEventListener("htmx:configRequest", (event) => {
    const button = event.detail.triggeringEvent?.submitter;
    if (!button?.matches("[data-question] button[form]")) return;
    if (button.name) event.detail.parameters[button.name] = button.value;
    if (button.hasAttribute("formaction")) event.detail.path = button.getAttribute("formaction");
  });

  document.addEventListener("htmx:beforeRequest", (event) => {
    const card = cardOf(askerOf(event));
    if (!card) return;
    if (isAnswer(event)) {
      sending.add(idOf(card));
      clearRefusals(card);
      const { path } = event.detail.requestConfig;
      unsent.set(idOf(card), unsentWords(card, path !== askerOf(event).getAttribute("hx-post")));
      event.detail.xhr.addEventListener("loadend", () => sent(idOf(card), event.detail.xhr, card));
    } else if (sending.has(idOf(card))) {
      outdated.add(idOf(card));
      event.preventDefault();
    }
  });

  // The card may have left the page since, and with it what htmx tells about the request.
  function sent(id, xhr, card) {
    sending.delete(id);
    leaveUnsent(id, xhr);
    const shown = document.querySelector(`[data-question="${id}"]`);
    if (shown && (outdated.delete(id) || (!card.isConnected && shown.dataset.state === "open"))) {
      shown.dispatchEvent(new CustomEvent("catherder:again", { bubbles: true }));
    }
    if (pressed.delete(id) && xhr.status === 400 && shown === card) sendNow(card);
  }

  // In place of the draft, as soon as the portal says that the rest of it was stored.
  function leaveUnsent(id, xhr) {
    drafts.removeStored();
    if (xhr.status === 200 && !drafts.read(key(id))) addToDraft(id, unsent.get(id) || []);
  }

  document.addEventListener("htmx:beforeSwap", (event) => {
    const card = cardOf(askerOf(event));
    if (!card) return;
    if (!isAnswer(event)) {
      if (sending.has(idOf(card))) event.detail.shouldSwap = false;
      else if (event.detail.shouldSwap && card.isConnected && event.detail.target.contains(card)) carry(card); // not a part, nor one that was replaced
    } else if (event.detail.xhr.status === 200) {
      done = idOf(card);
      leaveUnsent(idOf(card), event.detail.xhr);
    }
  });

  // ---- after an answer, the next question has the focus, or the card that says what was answered ----

  let done = null;

  document.addEventListener("htmx:afterSettle", () => {
    const card = done && document.querySelector(`[data-question="${done}"]`);
    done = null;
    if (!card) return;
    const open = openCards();
    const next = card.dataset.state === "open" ? card : open.find((other) => card.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING) || open[0];
    const fold = next?.closest("details");
    if (fold) fold.open = true;
    (next || card).focus({ preventScroll: true });
    (next || card).scrollIntoView({ block: "nearest" });
  });

  // Refused: go to the field that it is about, which says so until something is typed.
  document.addEventListener("htmx:afterSwap", (event) => {
    const card = cardOf(askerOf(event));
    if (!card || !isAnswer(event) || event.detail.xhr?.status !== 400) return;
    const field = event.detail.target.closest(".item, .notes")?.querySelector(".choice > input, textarea:not(:disabled)");
    field?.setAttribute("aria-invalid", "true");
    field?.focus();
  });

  function clearRefusals(card) {
    for (const place of card.querySelectorAll(".refusal-place")) place.replaceChildren();
    for (const field of card.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
  }

  function refuse(event, text) {
    const card = isAnswer(event) && cardOf(askerOf(event));
    const place = card && card.querySelector(`#question-${idOf(card)}-refusal`);
    if (!place) return;
    const words = document.createElement("p");
    words.className = "refusal";
    words.textContent = text;
    place.replaceChildren(words);
    if (document.activeElement === document.body) card.focus({ preventScroll: true }); // its button was off
  }

  for (const fault of ["htmx:sendError", "htmx:responseError"]) {
    document.addEventListener(fault, (event) => refuse(event, drafts.faultOf(event.detail.xhr)));
  }

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

  // From the card to its first option, then from one to the next. Between radio buttons browsers do it.
  function step(by, from) {
    const item = from.closest(".item") || (cardOf(from) === from && itemInHand());
    if (!item) return false;
    const fields = [...item.querySelectorAll(".choice > input, textarea.own-text:only-of-type")].filter((field) => field.offsetParent);
    const next = fields[fields.indexOf(from) + by];
    if (!next || (from.type === "radio" && next.type === "radio")) return false;
    next.focus();
    if (next.type === "radio") next.click();
    return true;
  }

  // What the card's one visible button does: after Deny, Send back or Skip was chosen, that.
  function send(event) {
    const card = cardOf(event.target);
    if (!formOf(card) || event.target.closest(".confirm")) return;
    event.preventDefault();
    if (sending.has(idOf(card))) pressed.add(idOf(card)); // the answer under way may be refused
    else sendNow(card);
  }

  function sendNow(card) {
    (card.querySelector(".instead[open] button") || card.querySelector(".card-buttons > .primary")).click();
  }

  document.addEventListener("toggle", (event) => {
    if (event.target.matches?.(".instead[open]")) cardOf(event.target).querySelector("[name=notes]").focus();
  }, true);

  function leave(event) {
    const choice = event.target.closest(".choice")?.querySelector("input");
    const instead = event.target.matches("[name=notes]") && cardOf(event.target).querySelector(".instead[open]");
    if (choice) choice.focus();
    else if (instead) { instead.open = false; instead.querySelector("summary").focus(); }
    else if (!event.target.closest(".menu-body")) cardOf(event.target).focus({ preventScroll: true });
  }

  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    const card = cardOf(event.target);
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      if (card) send(event);
    } else if (event.ctrlKey || event.metaKey) {
      return;
    } else if (event.key === "Escape" && isText(event.target) && card) {
      leave(event);
    } else if (event.key === "Enter" && event.target.matches?.(".choice > input")) {
      event.preventDefault(); // else it would send the form
      event.target.click();
    } else if (/^[1-9]$/.test(event.key) && !isText(event.target) && choose(Number(event.key))) {
      event.preventDefault();
    } else if (event.key === "r" && !isText(event.target) && useNearest()) {
      event.preventDefault();
    } else if (event.key === "u" && !isText(event.target) && undo()) {
      event.preventDefault();
    } else if (/^Arrow(Up|Down)$/.test(event.key) && card && !isText(event.target)) {
      if (step(event.key === "ArrowDown" ? 1 : -1, event.target)) event.preventDefault();
    }
  });

  addEventListener("DOMContentLoaded", look);
  document.addEventListener("htmx:load", look);
})();
