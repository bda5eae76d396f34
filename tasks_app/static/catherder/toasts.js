// A question that comes while one looks at something else: a quiet toast, and if it is allowed and the tab is
// in the background, a notification of the browser. The server says what is new, with the bell.
(() => {
  "use strict";
  const MOST = 3;
  //: These show every question themselves.
  const SHOW_ALL = ["/", "/inbox/", "/live/"];
  const shown = new Set();

  const linkOf = (toast) => toast.querySelector("a");
  const isHere = (toast) =>
    SHOW_ALL.includes(location.pathname) || new URL(linkOf(toast).href).pathname === location.pathname;

  function takeNews() {
    const news = document.querySelector("#bell .fresh");
    if (!news) return;
    for (const toast of [...news.children].reverse()) {
      if (!shown.has(toast.dataset.notice)) bring(toast);
    }
    news.remove();
  }

  function bring(toast) {
    shown.add(toast.dataset.notice);
    tellSystem(toast);
    if (isHere(toast)) return;
    const place = document.getElementById("toasts");
    place.querySelector(`[data-task="${CSS.escape(toast.dataset.task)}"]`)?.remove();
    while (place.children.length >= MOST) place.firstElementChild.remove();
    place.append(toast.cloneNode(true));
  }

  // Each open tab says it; the tag makes one of it.
  function tellSystem(toast) {
    if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
    const body = toast.querySelector(".toast-headline").textContent;
    const title = toast.querySelector(".toast-place").textContent;
    const address = linkOf(toast).href;
    try {
      const said = new Notification(title, { body, tag: `catherder-notice-${toast.dataset.notice}` });
      said.onclick = () => { window.focus(); said.close(); location.assign(address); };
    } catch { /* some phones have them for installed pages only */ }
  }

  document.addEventListener("click", (event) => {
    const toast = event.target.closest(".toast");
    if (toast && event.target.closest("button")) toast.remove();
    const link = event.target.closest("a[data-notice], .toast a");
    if (link) markRead((link.closest(".toast") || link).dataset.notice);
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") event.target.closest?.(".toast")?.remove();
  });

  function markRead(notice) {
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value;
    if (!token) return;
    const body = new URLSearchParams({ notice, quietly: "yes" });
    fetch("/notices/read/", { method: "POST", body, keepalive: true, headers: { "X-CSRFToken": token } }).catch(() => {});
  }

  // ---- the question is answered: its toast is out of date ----

  function settle() {
    for (const toast of document.querySelectorAll("#toasts .toast")) if (isHere(toast)) toast.remove();
  }

  // ---- my settings: may this browser tell me? ----

  const WORDS = {
    granted: "Allowed.",
    denied: "Blocked in the settings of this browser.",
    default: "Not allowed yet.",
  };

  function offer() {
    const place = document.querySelector("[data-browser-notices]");
    if (!place) return;
    const can = "Notification" in window && window.isSecureContext;
    place.querySelector("[data-state]").textContent = can ? WORDS[Notification.permission]
      : "Not available: it needs an https:// URL.";
    const button = place.querySelector("[data-allow]");
    button.hidden = !can || Notification.permission !== "default";
    button.onclick = async () => { await Notification.requestPermission(); offer(); };
  }

  document.addEventListener("htmx:oobAfterSwap", takeNews);
  document.addEventListener("htmx:afterSettle", takeNews);
  addEventListener("DOMContentLoaded", () => { offer(); settle(); });
})();
