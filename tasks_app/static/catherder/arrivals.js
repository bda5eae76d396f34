// Nothing moves under the reader's eyes or hand when something arrives: the line below the head of a task says it,
// with a link that shows it, and Enter follows that. A part that was fetched again is never lower than it was.
(() => {
  "use strict";

  // The link leads to another address, so that the browser loads the page; that address is not worth keeping.
  if (location.search === "?now") history.replaceState(history.state, "", location.pathname + location.hash);

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !window.catherder.isShortcut(event)) return;
    if (![document.body, document.getElementById("main")].includes(document.activeElement)) return;
    document.querySelector("[data-arrival]")?.click();
  });

  // ---- never lower than before ----

  const isSteady = (element) => element.matches("[data-steady], .card");
  // A card that says the answer keeps the height of its form only as long as it may become a form again by Undo.
  const isOver = (old, now) => old.matches(".card:not([data-state=open])") && !now.querySelector(".undo");

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, requestConfig } = event.detail;
    if (!isSteady(target) || requestConfig?.elt?.matches?.("form")) return;
    const height = target.getBoundingClientRect().height;
    const { parentElement: parent, previousElementSibling: previous } = target;
    event.detail.xhr.addEventListener("loadend", () => {
      const now = target.isConnected ? target : previous?.isConnected ? previous.nextElementSibling : parent.firstElementChild;
      if (now && !isOver(target, now) && now.getBoundingClientRect().height < height) now.style.minHeight = `${height}px`;
    });
  });
})();
