// An answer that becomes a decision: its statement is made of the answer until somebody edits it. On a card of
// several questions each has its own.
(() => {
  "use strict";
  // Blanks within a line stay: they may be what it is about.
  const inOneLine = (text) => text.split(/\r?\n/).map((line) => line.trim()).filter(Boolean).join(" ");

  // Each chosen option with its description, and what was typed: as `statement_for` does.
  function chosenIn(item) {
    const chosen = [...item.querySelectorAll(".choice > input:checked")].filter((choice) => choice.value).map((choice) => {
      const description = inOneLine(choice.dataset.description || "");
      return description ? `${choice.dataset.label}: ${description}` : choice.dataset.label;
    });
    const own = inOneLine(item.querySelector(".own-text:not(:disabled)")?.value || "");
    return own ? [...chosen, own] : chosen;
  }

  // An answer that says nothing without its question, as `is_terse` finds it.
  function isTerse(said) {
    return said && (said.split(/\s+/).length < 3 || /^(yes|no)(?=[\s:,;.])/i.test(said));
  }

  function statementOf(item) {
    const chosen = chosenIn(item), header = inOneLine(item.dataset.header || "");
    const said = chosen.length > 1 ? chosen.map((text) => text.replace(/\.$/, "")).join("; ") : chosen.join("");
    if (isTerse(said)) return `${item.dataset.asked || ""} ${said}`.trim();
    return said && header && !/^D-\d+$/.test(header) ? `${header}: ${said}` : said;
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

  // What replaces a decision holds where that one did, until something else is chosen: the form shows it.
  function showReplacing(card, decision) {
    const task = card.querySelector("input[name=remember][value=task]:checked");
    const scope = card.querySelector(`input[name=remember][value="${decision.dataset.scope}"]`);
    const paths = card.querySelector("input[name=remember-paths]");
    if (task && scope) {
      scope.checked = true;
      paths.value ||= decision.dataset.paths;
      scope.dispatchEvent(new Event("input", { bubbles: true })); // so that the draft has it
    }
    const ticked = card.querySelectorAll(".remember-item [type=checkbox]")[decision.dataset.item];
    if (ticked) ticked.checked = true;
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
    const replaced = event.target.value === "supersede" && event.target.closest?.(".related-decision");
    if (card && replaced) showReplacing(card, replaced);
    if (card && !event.target.name?.startsWith("statement")) prepare(card);
  });
  addEventListener("DOMContentLoaded", look);
  document.addEventListener("htmx:load", look);
})();
