// The installed app shows a page of its own while the portal cannot be reached.
if ("serviceWorker" in navigator && matchMedia("(display-mode: standalone)").matches) {
  addEventListener("load", () => navigator.serviceWorker.register("/service-worker.js").catch(() => {}));
}
