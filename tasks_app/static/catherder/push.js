// My notification settings: this browser asks for permission, subscribes and tells the portal, only after a click.
(() => {
  "use strict";
  const form = document.getElementById("push-subscribe");
  if (!form) return;
  const state = form.querySelector("[data-push-state]");
  const button = form.querySelector("button");
  const can = "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;

  function bytes(text) {
    const raw = atob(text.replace(/-/g, "+").replace(/_/g, "/").padEnd(Math.ceil(text.length / 4) * 4, "="));
    return Uint8Array.from(raw, (letter) => letter.charCodeAt(0));
  }

  async function subscribe(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      if (await Notification.requestPermission() !== "granted") {
        state.textContent = "Notifications are blocked in the settings of this browser.";
        return;
      }
      await navigator.serviceWorker.register(form.dataset.worker);
      const { pushManager } = await navigator.serviceWorker.ready;
      const old = await pushManager.getSubscription();
      if (old) await old.unsubscribe(); // it may have been made for another installation
      const made = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytes(form.dataset.key) });
      const { endpoint, keys } = made.toJSON();
      form.elements.endpoint.value = endpoint;
      form.elements.p256dh.value = keys.p256dh;
      form.elements.auth.value = keys.auth;
      form.submit();
    } catch (error) {
      state.textContent = `This browser could not subscribe: ${error.message}`;
    } finally {
      button.disabled = false;
    }
  }

  if (can && window.isSecureContext) form.addEventListener("submit", subscribe);
  else {
    button.disabled = true;
    state.textContent = window.isSecureContext ? "This browser has no Web Push." : "Not available: it needs an https:// URL.";
  }
})();
