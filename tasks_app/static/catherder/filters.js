// Filters that fetch what they let through: the address says the same as the form, so that it can be kept.
(() => {
  "use strict";

  document.addEventListener("htmx:configRequest", (event) => {
    if (!event.target.matches("[data-url-follows]")) return;
    const given = event.detail.parameters;
    for (const name of Object.keys(given)) {
      const values = [].concat(given[name]).filter(Boolean);
      if (values.length === 0) delete given[name];
    }
  });

  document.addEventListener("htmx:afterSwap", (event) => {
    const asked = event.detail.requestConfig?.elt;
    if (!asked?.matches("[data-url-follows]")) return;
    const path = event.detail.pathInfo.finalRequestPath;
    history.replaceState(null, "", path);
    for (const link of document.querySelectorAll("[data-same-words]")) {
      const address = new URL(link.href);
      const words = new URL(path, location.href).searchParams.get("q");
      if (words) address.searchParams.set("q", words); else address.searchParams.delete("q");
      link.href = address;
    }
  });
})();
