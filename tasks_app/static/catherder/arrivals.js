// Nothing moves under the reader's eyes or hand when something arrives. A question or a result that comes while
// the page is open lies over what it would push away, in the place that it has from the next load on, until the
// reader makes room for it. And a part that was fetched again is never lower than it was.
(() => {
  "use strict";
  const arrivalsOf = (section) => section.querySelector(":scope > .arrived");
  const contentOf = (section) => [...section.children].filter((one) => one.matches(".card, .result, .failure"));

  // ---- over the page, and into it ----

  function buttonOf(words, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small plain";
    button.textContent = words;
    button.addEventListener("click", act);
    return button;
  }

  function makePlace(section) {
    const place = document.createElement("div");
    place.className = "arrived";
    const bar = document.createElement("p");
    bar.className = "arrived-bar";
    const room = buttonOf("Show it", () => makeRoom(section));
    room.title = "Put this into the page; the rest moves down";
    bar.append(room);
    place.append(bar);
    section.append(place);
    return place;
  }

  function layOver(section, arrived) {
    const place = arrivalsOf(section) || makePlace(section);
    place.append(...arrived);
  }

  function makeRoom(section) {
    const place = arrivalsOf(section);
    if (!place) return;
    const shown = [...place.children].filter((one) => !one.matches(".arrived-bar"));
    const active = place.contains(document.activeElement) && document.activeElement;
    section.append(...shown);
    place.remove();
    if (active?.isConnected) active.focus({ preventScroll: true });
    else if (active) { shown[0].tabIndex = -1; shown[0].focus({ preventScroll: true }); }
    shown[0]?.scrollIntoView({ block: "nearest" });
  }

  // ---- what a part held before it was fetched again ----

  const before = new Map();

  document.addEventListener("htmx:beforeSwap", (event) => {
    const section = event.detail.target;
    if (section.matches("[data-arrivals]")) before.set(section, { content: contentOf(section), over: Boolean(arrivalsOf(section)) });
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    const section = event.detail.target;
    const had = before.get(section);
    if (!had) return;
    before.delete(section);
    const arrived = contentOf(section).filter((one) => !had.content.includes(one));
    // A part that replaces all it has was in the page before, or it was not.
    const replaced = had.content.length > 0 && !had.content[0].isConnected;
    if (arrived.length && !replaced) layOver(section, arrived);
  });

  // An answer was given here: what says so may take its place.
  document.addEventListener("htmx:afterSettle", (event) => {
    const section = event.detail.requestConfig?.elt?.matches?.("[data-question] form") && document.querySelector("[data-arrivals]:has(> .arrived)");
    if (section && !section.querySelector(".arrived .card-open")) makeRoom(section);
  });

  // What was withdrawn is among the questions below. A text that was typed and not sent stays in reach.
  document.addEventListener("htmx:afterSettle", () => {
    for (const card of document.querySelectorAll(".arrived > .card-withdrawn:not(:has(.kept:not([hidden])))")) {
      const place = card.parentElement;
      window.catherder.replaceKeepingFocus(card, () => card.remove());
      if (!place.querySelector(".card")) place.remove();
    }
  });

  // ---- never lower than before ----

  const isSteady = (element) => element.matches("[data-steady], .card");
  // A card that says the answer keeps the height of its form only as long as it may become a form again by Undo.
  const isOver = (old, now) => old.matches(".card:not([data-state=open])") && !now.querySelector(".undo");

  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, requestConfig } = event.detail;
    if (!isSteady(target) || target.closest(".arrived") || requestConfig?.elt?.matches?.("form")) return;
    const height = target.getBoundingClientRect().height;
    const { parentElement: parent, previousElementSibling: previous } = target;
    event.detail.xhr.addEventListener("loadend", () => {
      const now = target.isConnected ? target : previous?.isConnected ? previous.nextElementSibling : parent.firstElementChild;
      if (now && !isOver(target, now) && now.getBoundingClientRect().height < height) now.style.minHeight = `${height}px`;
    });
  });
})();
