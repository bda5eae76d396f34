// Keys that every page has: j and k go from card to card or from row to row, Enter and o open the task of a
// card, a goes to its Approve, d opens its Deny, Send back or Skip, g and a letter go to a page, n to a new task,
// ? lists all keys. None of them while something is typed.
(() => {
  "use strict";
  const TYPING = "textarea, select, [contenteditable], input:not([type=radio], [type=checkbox], [type=button], [type=submit])";
  // Whether a key that is pressed is one of these: other scripts ask the same.
  const isShortcut = (event) =>
    !(event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing)
    && !event.target.closest?.(TYPING) && !document.querySelector("dialog[open]");
  (window.catherder ??= {}).isShortcut = isShortcut;

  const cardOf = (element) => element?.closest?.("[data-question]");
  const stops = () => [...document.querySelectorAll("main [data-question], main .rows .row-title > a, main .inbox-row > a")]
    .filter((one) => one.checkVisibility()); // not in a fold

  // A page with a list that keeps its own selection moves that.
  function moveIn(list, by) {
    return list && !list.dispatchEvent(new CustomEvent("catherder:move", { detail: by, cancelable: true }));
  }

  function move(by) {
    if (moveIn(document.getElementById("inbox-list"), by)) return;
    const all = stops();
    const here = all.indexOf(cardOf(document.activeElement) || document.activeElement);
    const next = all[here < 0 ? (by > 0 ? 0 : all.length - 1) : here + by];
    if (!next) return;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: next.matches("[data-question]") ? "start" : "nearest" });
  }

  function openTask(event) {
    const card = cardOf(document.activeElement);
    if (!card || (event.key === "Enter" && document.activeElement !== card)) return;
    event.preventDefault();
    const link = card.querySelector("[data-opens]");
    if (link && link.pathname !== location.pathname) link.click(); // else one would lose one's place in the log
  }

  // The only open card, or the one with the focus.
  function decide(event) {
    const open = [...document.querySelectorAll("main .card-open")];
    const card = open.includes(cardOf(document.activeElement)) ? cardOf(document.activeElement) : open.length === 1 && open[0];
    if (!card) return;
    event.preventDefault();
    if (event.key === "a") card.querySelector(".card-buttons > .primary[name=verdict]")?.focus();
    else card.querySelector(".instead:not([open]) > summary")?.click();
  }

  function showKeys() {
    const help = document.getElementById("keys");
    if (!help || help.open) return;
    help.showModal();
    help.focus(); // else the button at its end has the focus, and a phone shows the end of the list
    help.scrollTop = 0;
  }

  // g and then a letter, within a second and a half: the links are those of the navigation.
  let goUntil = 0;
  const link = (key) => document.querySelector(`nav [data-go="${key}"]`);

  function go(event) {
    const going = performance.now() < goUntil;
    goUntil = event.key === "g" && !going ? performance.now() + 1500 : 0;
    const target = going ? link(event.key) : event.key === "n" && link("n");
    if (target) { event.preventDefault(); target.click(); }
    return going || Boolean(target) || event.key === "g";
  }

  document.addEventListener("keydown", (event) => {
    if (!isShortcut(event) || go(event)) return;
    if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (/^[ad]$/.test(event.key)) decide(event);
    else if (event.key === "?") showKeys();
    else if (event.key === "o" || event.key === "Enter") openTask(event);
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest?.("[data-keys]")) showKeys();
    else if (event.target.matches?.("dialog#keys")) event.target.close(); // beside its content
  });
})();
