// A form is sent once: while it is under way its buttons are off, and one that takes longer says so: with dots,
// or, where that is known beforehand, with the words of `data-slow`, in its `[data-slow-said]` or on the button.
(() => {
  "use strict";
  const LONGEST = 15000; // then whoever waits may try again

  const buttonsOf = (form) => [...form.elements].filter((field) => field.matches("button"));
  const words = new WeakMap(); // what a place said before

  function saySlow(form, button) {
    const place = form.querySelector("[data-slow-said]") || button;
    if (!place) return;
    words.set(form, [place, place.textContent]);
    place.textContent = form.dataset.slow;
  }

  function begin(form, button) {
    form.dataset.sending = "yes";
    if (form.dataset.slow) saySlow(form, button);
    else button?.classList.add("is-sending");
    setTimeout(() => buttonsOf(form).forEach((one) => { one.disabled = true; })); // its own value is sent, too
    if (!form.dataset.slow) setTimeout(() => end(form), LONGEST);
  }

  function end(form) {
    delete form.dataset.sending;
    const [place, before] = words.get(form) || [];
    if (place) place.textContent = before;
    words.delete(form);
    for (const button of buttonsOf(form)) {
      button.disabled = false;
      button.classList.remove("is-sending");
    }
  }

  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.dataset.sending) event.preventDefault();
    else if (!event.defaultPrevented && form.method !== "dialog") begin(form, event.submitter); // else htmx sends it
  });
  addEventListener("pageshow", () => document.querySelectorAll("form[data-sending]").forEach(end));

  // A name is judged while it is typed: its characters by `pattern`, and whether it is among those that are taken.
  document.addEventListener("input", ({ target }) => {
    const place = target.id && document.querySelector(`[data-fault-of="${target.id}"]`);
    if (!place) return;
    const faults = { pattern: target.validity.patternMismatch, taken: place.dataset.taken.split(" ").includes(target.value) };
    for (const said of place.children) said.hidden = !target.value || !faults[said.dataset.if];
    place.hidden = [...place.children].every((said) => said.hidden);
  });

  const submitterOf = (event) => {
    const config = event.detail.requestConfig;
    if (!config?.elt?.matches?.("form")) return null;
    return config.triggeringEvent?.submitter || buttonsOf(config.elt)[0] || null;
  };
  document.addEventListener("htmx:beforeRequest", (event) => submitterOf(event)?.classList.add("is-sending"));
  document.addEventListener("htmx:afterRequest", (event) => submitterOf(event)?.classList.remove("is-sending"));
})();
