// An answer that becomes a decision: its statement is made of the answer until somebody edits it. On a card of
// several questions each has its own.
(() => {
  "use strict";
  // Each chosen option with its description, and what was typed: as `statement_for` does.
  function chosenIn(item) {
    const chosen = [...item.querySelectorAll(".choice > input:checked")].filter((choice) => choice.value).map((choice) => {
      const description = choice.dataset.description?.trim().replace(/\s+/g, " ");
      return description ? `${choice.dataset.label}: ${description}` : choice.dataset.label;
    });
    const own = item.querySelector(".own-text:not(:disabled)")?.value.trim().replace(/\s+/g, " ");
    return own ? [...chosen, own] : chosen;
  }

  function statementOf(item) {
    const chosen = chosenIn(item), header = item.dataset.header?.trim().replace(/\s+/g, " ");
    const said = chosen.length > 1 ? chosen.map((text) => text.replace(/\.$/, "")).join("; ") : chosen.join("");
    return said && header ? `${header}: ${said}` : said;
  }

  // Each item with the field of its statement.
  function statementsOf(card) {
    const fields = [...card.querySelectorAll("textarea[name^=statement]")];
    return [...card.querySelectorAll(".item")].map((item, place) => [item, fields[place]]).filter(([, field]) => field);
  }

  function prepare(card) {
    const scope = card.querySelector("input[name=remember]:checked")?.value;
    const isRemembered = Boolean(scope && scope !== "task");
    for (const [item, field] of statementsOf(card)) {
      const isReplacing = Boolean(card.querySelector(`.related-decision[data-item="${item.dataset.item}"] [value=supersede]:checked`));
      const place = field.closest(".remember-item");
      place?.classList.toggle("is-replacing", isReplacing);
      if (place) place.hidden = !isRemembered && !isReplacing;
      const isWanted = field.value || isRemembered || isReplacing;
      if (!isWanted || (field.value && field.value !== field.dataset.made)) continue; // somebody has edited it
      const before = field.value;
      field.value = field.dataset.made = statementOf(item);
      if (field.value !== before) field.dispatchEvent(new Event("input", { bubbles: true })); // so that the draft has it
    }
  }

  // A draft was restored, or the server shows what was entered: it was edited if it is not what would be made.
  function look() {
    for (const card of document.querySelectorAll("[data-question][data-state=open]")) {
      for (const [item, field] of statementsOf(card)) field.dataset.made ??= statementOf(item);
      prepare(card);
    }
  }

  // When it bubbles up to here, the script of the card has seen it, which lets a free text count.
  document.addEventListener("input", (event) => {
    const card = event.target.closest?.("[data-question][data-state=open]");
    if (card && !event.target.name?.startsWith("statement")) prepare(card);
  });
  addEventListener("DOMContentLoaded", look);
  document.addEventListener("htmx:load", look);
})();
