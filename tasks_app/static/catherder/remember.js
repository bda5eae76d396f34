// An answer that becomes a decision: its statement is made of question and answer until somebody edits it.
(() => {
  "use strict";
  const chosenIn = (item) => {
    const labels = [...item.querySelectorAll(".choice > input:checked")].map((choice) => choice.value).filter(Boolean);
    const own = item.querySelector(".own-text:not(:disabled)");
    return [...labels, own?.value.trim()].filter(Boolean).join(", ");
  };

  function statementOf(card) {
    const lines = [...card.querySelectorAll(".item")].map((item) => {
      const answer = chosenIn(item);
      return answer && `${item.querySelector(".headline").textContent.trim()} ${answer}`;
    });
    return lines.filter(Boolean).join("\n");
  }

  function prepare(card) {
    const field = card.querySelector("textarea[name=statement]");
    const scope = card.querySelector("input[name=remember]:checked")?.value;
    if (!field || !scope || scope === "task") return;
    if (field.value && field.value !== field.dataset.made) return; // somebody has edited it
    field.value = field.dataset.made = statementOf(card);
  }

  document.addEventListener("input", (event) => {
    const card = event.target.closest?.("[data-question][data-state=open]");
    if (card && event.target.name !== "statement") prepare(card);
  });
})();
