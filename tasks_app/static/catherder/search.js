// Quick search: Ctrl+K opens a dialog; what is typed filters, the arrows choose, Enter goes there. The focus stays
// in the field, which names the chosen option (the combobox pattern).
(() => {
  "use strict";
  const dialog = document.getElementById("search");
  const field = document.getElementById("search-text");
  const list = document.getElementById("search-options");
  const count = document.getElementById("search-count");
  if (!dialog) return;
  const options = () => [...list.querySelectorAll(".hit")];

  function open() {
    if (dialog.open || document.querySelector("dialog[open]")) return;
    dialog.showModal();
    field.select();
    field.dispatchEvent(new CustomEvent("catherder:search"));
  }

  function choose(option) {
    for (const one of options()) one.setAttribute("aria-selected", String(one === option));
    if (option) {
      field.setAttribute("aria-activedescendant", option.id);
      option.scrollIntoView({ block: "nearest" });
    } else field.removeAttribute("aria-activedescendant");
  }

  function move(by) {
    const all = options();
    const here = all.findIndex((option) => option.getAttribute("aria-selected") === "true");
    choose(all[(here + by + all.length) % all.length]);
  }

  list.addEventListener("htmx:afterSettle", () => {
    const all = options();
    choose(all[0]);
    const found = all.filter((option) => option.id !== "search-hit-more").length;
    count.textContent = found === 1 ? "1 result" : `${found} results`;
  });

  dialog.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Escape") {
      event.preventDefault();
      dialog.close();
    } else if (event.key === "Enter" && event.target === field) {
      const chosen = list.querySelector("[aria-selected=true]");
      if (!chosen) return; // the form shows the page with all results
      event.preventDefault();
      chosen.click();
    }
  });

  list.addEventListener("pointermove", (event) => {
    const option = event.target.closest(".hit");
    if (option && option.getAttribute("aria-selected") !== "true") choose(option);
  });

  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
      event.preventDefault();
      if (dialog.open) dialog.close(); else open();
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-search]")) { event.preventDefault(); open(); }
    else if (event.target === dialog) dialog.close();
  });
})();
