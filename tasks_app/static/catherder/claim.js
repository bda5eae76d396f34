// “NAME is answering”: who writes in a card says so to the others, for as long as they write and stay.
(() => {
  "use strict";
  const AGAIN = 60_000; // a claim is renewed this often
  const claimed = new Map(); // by question: its address, token and when it was last claimed

  const placeOf = (card) => card?.querySelector("[data-claim]");

  function send(address, token, release, keepalive = false) {
    const body = new URLSearchParams(release ? { release: "yes" } : {});
    fetch(address, { method: "POST", body, keepalive, headers: { "X-CSRFToken": token } }).catch(() => {});
  }

  function claim(card) {
    const known = claimed.get(card.dataset.question);
    if (known && Date.now() - known.at < AGAIN) return;
    const token = card.querySelector("[name=csrfmiddlewaretoken]").value;
    const address = placeOf(card).dataset.claim;
    claimed.set(card.dataset.question, { address, token, at: Date.now() });
    send(address, token, false);
  }

  function release(question, keepalive) {
    const { address, token } = claimed.get(question);
    claimed.delete(question);
    send(address, token, true, keepalive);
  }

  document.addEventListener("input", (event) => {
    if (event.target.closest?.(".asking")) return; // who hands it over does not answer
    const card = event.target.closest?.("[data-question][data-state=open]");
    if (placeOf(card)) claim(card);
  });

  // Left for another question. After an answer there is nothing to release.
  function look() {
    for (const question of [...claimed.keys()]) {
      const card = document.querySelector(`[data-question="${CSS.escape(question)}"]`);
      if (!card) release(question, false);
      else if (card.dataset.state !== "open") claimed.delete(question);
    }
    for (const said of document.querySelectorAll(".claim[data-lasts]")) {
      const lasts = Number(said.dataset.lasts) * 1000;
      delete said.dataset.lasts;
      setTimeout(() => said.remove(), lasts);
    }
  }

  addEventListener("pagehide", () => [...claimed.keys()].forEach((question) => release(question, true)));
  addEventListener("DOMContentLoaded", look);
  document.addEventListener("htmx:afterSettle", look);
})();
