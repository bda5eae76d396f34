// An answer that becomes a decision: its statement is made of question and answer until somebody edits it. On a
// card of several questions each has its own.
(() => {
  "use strict";
  const chosenIn = (item) => {
    const labels = [...item.querySelectorAll(".choice > input:checked")].map((choice) => choice.value).filter(Boolean);
    const own = item.querySelector(".own-text:not(:disabled)");
    return [...labels, own?.value.trim()].filter(Boolean).join(", ");
  };

  function statementOf(item) {
    const answer = chosenIn(item).replace(/\s*[([]\s*recommended\s*[)\]]/gi, "");
    return answer && `${item.querySelector(".headline").textContent.trim()} ${answer}`;
  }

  // Each item with the field of its statement.
  function statementsOf(card) {
    const fields = [...card.querySelectorAll("textarea[name^=statement]")];
    return [...card.querySelectorAll(".item")].map((item, place) => [item, fields[place]]).filter(([, field]) => field);
  }

  function prepare(card) {
    const scope = card.querySelector("input[name=remember]:checked")?.value;
    for (const [item, field] of statementsOf(card)) {
      const isWanted = field.value || (scope && scope !== "task");
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
