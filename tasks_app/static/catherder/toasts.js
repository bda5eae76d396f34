// A question or a failure that comes while one looks at something else: a quiet toast, and if it is allowed and the tab is
// in the background, a notification of the browser. The server says what is new, with the bell.
(() => {
  "use strict";
  const MAX_TOASTS = 3;
  //: These show every question themselves, and the first one every failure.
  const PAGES_WITH_QUESTIONS = ["/", "/inbox/"];
  const shown = new Set();

  const linkOf = (toast) => toast.querySelector("a");
  const concernsThisPage = (toast) =>
    (toast.matches(".toast-failed") ? location.pathname === "/" : PAGES_WITH_QUESTIONS.includes(location.pathname))
    || new URL(linkOf(toast).href).pathname === location.pathname;

  function showNewNotices() {
    const news = document.querySelector("#bell .new-notices");
    if (!news) return;
    for (const toast of [...news.children].reverse()) {
      if (!shown.has(toast.dataset.notice)) showToast(toast);
    }
    news.remove();
  }

  const oldestOf = (place) => [...place.children].sort((one, other) => one.dataset.notice - other.dataset.notice)[0];

  function showToast(toast) {
    shown.add(toast.dataset.notice);
    showBrowserNotification(toast);
    if (concernsThisPage(toast)) return;
    const place = document.getElementById("toasts");
    const earlier = place.querySelector(`[data-task="${CSS.escape(toast.dataset.task)}"]`)
      || (place.children.length >= MAX_TOASTS && oldestOf(place));
    // None of the others moves: the new one lies on top, or takes the place of one that goes.
    if (earlier) earlier.replaceWith(toast.cloneNode(true));
    else place.prepend(toast.cloneNode(true));
  }

  // Each open tab says it; the tag makes one of it.
  function showBrowserNotification(toast) {
    if (!document.hidden || !("Notification" in window) || Notification.permission !== "granted") return;
    const body = toast.querySelector(".toast-headline").textContent.trim();
    const title = toast.querySelector(".toast-place").textContent;
    const address = linkOf(toast).href;
    try {
      const said = new Notification(title, { body, tag: `catherder-notice-${toast.dataset.notice}` });
      said.onclick = () => { window.focus(); said.close(); location.assign(address); };
    } catch { /* some phones have them for installed pages only */ }
  }

  // The focus goes on to the next toast, or back to the page.
  function close(toast) {
    const next = toast.nextElementSibling || toast.previousElementSibling;
    const hadFocus = toast.contains(document.activeElement);
    toast.remove();
    if (hadFocus) (next ? linkOf(next) : document.getElementById("main")).focus();
  }

  document.addEventListener("click", (event) => {
    const toast = event.target.closest(".toast");
    if (toast && event.target.closest("button")) close(toast);
    const link = event.target.closest("a[data-notice], .toast a");
    if (link) markRead((link.closest(".toast") || link).dataset.notice);
  });

  document.addEventListener("keydown", (event) => {
    const toast = event.key === "Escape" && event.target.closest?.(".toast");
    if (toast) close(toast);
  });

  function markRead(notice) {
    const token = document.querySelector("[name=csrfmiddlewaretoken]")?.value;
    if (!token) return;
    const body = new URLSearchParams({ notice, quietly: "yes" });
    fetch("/notices/read/", { method: "POST", body, keepalive: true, headers: { "X-CSRFToken": token } }).catch(() => {});
  }

  // ---- the question is answered: its toast is out of date ----

  function removeAnswered() {
    for (const toast of document.querySelectorAll("#toasts .toast")) if (concernsThisPage(toast)) toast.remove();
  }

  // ---- my settings: may this browser tell me? ----

  const WORDS = {
    granted: "Allowed.",
    denied: "Blocked in the settings of this browser.",
    default: "Not allowed yet.",
  };

  function showPermission() {
    const place = document.querySelector("[data-browser-notices]");
    if (!place) return;
    const can = "Notification" in window && window.isSecureContext;
    place.querySelector("[data-state]").textContent = can ? WORDS[Notification.permission]
      : "Not available: it needs an https:// URL.";
    const button = place.querySelector("[data-allow]");
    button.hidden = !can || Notification.permission !== "default";
    button.onclick = async () => { await Notification.requestPermission(); showPermission(); };
  }

  document.addEventListener("htmx:oobAfterSwap", showNewNotices);
  document.addEventListener("htmx:afterSettle", showNewNotices);
  addEventListener("DOMContentLoaded", () => { showPermission(); removeAnswered(); });
})();
