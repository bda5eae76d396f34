// What every page keeps true: the title and the favicon, relative times, commands to copy, menus.
(() => {
  "use strict";

  // ---- counts in the title and the favicon ----

  function showCount() {
    const count = Number(document.querySelector("[data-open]")?.dataset.open || 0);
    const bare = document.title.replace(/^\(\d+\) /, "");
    document.title = count ? `(${count}) ${bare}` : bare;
    const favicon = document.getElementById("favicon");
    const wanted = count ? favicon.dataset.waiting : favicon.dataset.calm;
    if (favicon.getAttribute("href") !== wanted) favicon.setAttribute("href", wanted);
  }

  // ---- relative times and growing durations, in the same words as the server ----

  const UNITS = [[60, "min", 3600], [3600, "h", 86400], [86400, "d", 14 * 86400]];
  const SIZES = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  const SILENT = 300; // seconds without output of an agent
  const LONG_WAIT = 900; // seconds that an agent has waited for a human

  // The clock of the server counts: that of the browser may be wrong. The page says when it was made.
  const answered = performance.getEntriesByType("navigation")[0]?.responseStart || performance.now();
  const arrived = Date.now() - (performance.now() - answered);
  const clockOffset = Date.parse(document.documentElement.dataset.now) - arrived;
  const secondsSince = (moment) => (Date.now() + clockOffset - Date.parse(moment)) / 1000;

  function ago(time) {
    const seconds = secondsSince(time.dateTime);
    if (time.dataset.ago === "s" && seconds < 60) return `${Math.max(0, Math.floor(seconds))} s ago`;
    if (seconds < 45) return "just now";
    const unit = UNITS.find(([, , below]) => seconds < below);
    return unit ? `${Math.max(1, Math.floor(seconds / unit[0]))} ${unit[1]} ago` : new Date(time.dateTime).toLocaleDateString("sv");
  }

  // The two largest units, as in "4 min 12 s".
  function duration(since) {
    let left = Math.max(0, Math.floor(secondsSince(since)));
    const parts = [];
    for (const [size, name] of SIZES) {
      const number = Math.floor(left / size);
      left -= number * size;
      if (number) parts.push(`${number} ${name}`);
    }
    return parts.slice(0, 2).join(" ") || "0 s";
  }

  function setText(place, words) {
    if (place.textContent !== words) place.textContent = words;
  }

  function showTimes() {
    if (document.hidden) return;
    for (const time of document.querySelectorAll("time[data-ago]")) setText(time, ago(time));
    for (const time of document.querySelectorAll("time[data-ago=s]")) time.classList.toggle("is-silent", secondsSince(time.dateTime) > SILENT);
    for (const time of document.querySelectorAll("time[data-ago=wait]")) time.classList.toggle("is-late", secondsSince(time.dateTime) > LONG_WAIT);
    for (const place of document.querySelectorAll("[data-since]")) setText(place, duration(place.dataset.since));
  }

  // ---- parts that are fetched again notice a login that ended ----

  document.addEventListener("htmx:beforeSwap", (event) => {
    if (new URL(event.detail.xhr.responseURL || location.href).pathname !== "/login/") return;
    event.detail.shouldSwap = false;
    document.dispatchEvent(new CustomEvent("catherder:logged-out"));
  });

  // ---- parts that replace themselves: what they are told while they are fetched, their successor fetches ----

  const fetching = new WeakSet();
  const missed = new WeakSet();

  function fetchAgain(element) {
    const url = element?.getAttribute("hx-get");
    if (url) window.htmx.ajax("GET", url, { source: element, target: element, swap: "outerHTML" }).catch(() => {});
  }

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (!event.defaultPrevented) fetching.add(event.detail.elt);
  });
  document.addEventListener("htmx:trigger", (event) => { if (fetching.has(event.target)) missed.add(event.target); });
  document.addEventListener("htmx:afterRequest", (event) => {
    const asked = event.detail.requestConfig?.elt;
    if (!asked) return;
    fetching.delete(asked);
    if (!asked.isConnected && missed.has(asked) && asked.id) fetchAgain(document.getElementById(asked.id));
    missed.delete(asked);
  });
  document.addEventListener("catherder:again", (event) => fetchAgain(event.target));

  // ---- commands to copy ----

  function offerCopy(place) {
    if (place.dataset.ready || !navigator.clipboard) return;
    place.dataset.ready = "yes";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "small plain";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(place.querySelector("pre").textContent);
      button.textContent = "Copied";
    });
    place.append(button);
  }

  function refresh() {
    showCount();
    showTimes();
    document.querySelectorAll("[data-copy]").forEach(offerCopy);
  }

  // Of tabs that do not fit, on a phone.
  function showCurrentTab() {
    for (const tab of document.querySelectorAll(".page-tabs [aria-current]")) {
      const { parentElement: tabs } = tab;
      if (tabs.scrollWidth > tabs.clientWidth) tab.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
  }

  // Quiet hours and daily digests use the time zone of the user, which the portal does not know.
  function selectBrowserTimeZone() {
    const choice = document.querySelector("select[data-browser-time-zone]");
    const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (choice && [...choice.options].some((one) => one.value === here)) choice.value = here;
  }

  addEventListener("DOMContentLoaded", () => {
    refresh();
    selectBrowserTimeZone();
    showCurrentTab();
    setInterval(showTimes, 1000);
    document.addEventListener("visibilitychange", showTimes);
  });
  document.addEventListener("htmx:afterSwap", showCurrentTab);
  document.addEventListener("htmx:afterSwap", refresh); // before refresh.js looks for what had the focus

  // A menu closes when something outside of it is pressed or gets the focus. What had the focus before a dialog
  // gets it back when that is closed, so that the menu stays until then.
  function closeOtherMenus({ target }) {
    if (target.closest?.("dialog")) return;
    for (const menu of document.querySelectorAll("details.menu[open], details.confirm[open]")) {
      if (!menu.contains(target)) menu.open = false;
    }
  }
  document.addEventListener("click", closeOtherMenus);
  document.addEventListener("focusin", closeOtherMenus);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const menu = event.target.closest?.("details.menu[open], details.confirm[open]");
    if (menu) { menu.open = false; menu.querySelector("summary").focus(); }
  });
})();
