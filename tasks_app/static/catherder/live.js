// One WebSocket for the page. A notice says only that a task has news: it becomes events on the body,
// on which the parts of the page fetch themselves again. Without a socket they are told every 5 s.
//
//   catherder:task-12-state   phase, questions or settings of task 12 changed
//   catherder:task-12-events  its log has more
//   catherder:task-12-activity  the same, less often: what its agent does now
//   catherder:state           the state of some task changed
//   catherder:news            anything happened
//   catherder:notices         people were told of something: the bell and the toasts
//   catherder:refresh         notices may have been missed: everything fetches itself again
//
// A notice that comes twice or late does no harm: it only makes a part fetch what is true now.
(() => {
  "use strict";

  const POLL = 5000;
  const LONGEST_WAIT = 15000;
  const SPACING = 200;
  const SOON = 20;
  const ACTIVITY_SPACING = 2000;
  // `upto`: the position after the newest change that was heard of; what comes after it is asked for when the line is back.
  const state = { socket: null, tries: 0, poll: null, leaving: false, opened: false, upto: null, hello: null };

  const tell = (name) => document.body.dispatchEvent(new CustomEvent(`catherder:${name}`));

  // Events of one name are `spacing` apart; the first goes out at once, the last is never lost. The second one of
  // several goes out soon, too: what ends a task comes a few milliseconds after what ends its last step.
  const spaced = new Map();
  function tellSpaced(name, spacing = SPACING) {
    const known = spaced.get(name);
    if (!known) { tellAndWait(name, spacing, spacing > SPACING); return; }
    known.again = true;
    if (!known.hurried) { known.hurried = true; known.endIn(SOON); }
  }

  function tellAndWait(name, spacing, hurried) {
    const entry = { again: false, hurried, timer: null };
    entry.endIn = (wait) => {
      clearTimeout(entry.timer);
      entry.timer = setTimeout(() => {
        spaced.delete(name);
        if (entry.again) tellAndWait(name, spacing, true);
      }, wait);
    };
    spaced.set(name, entry);
    tell(name);
    entry.endIn(spacing);
  }

  function pass(notice) {
    const kinds = notice.kinds || [];
    const stateChanged = kinds.some((kind) => kind !== "events" && kind !== "notice");
    if (kinds.includes("notice")) tellSpaced("notices");
    if (kinds.includes("events")) {
      tellSpaced(`task-${notice.task}-events`);
      tellSpaced(`task-${notice.task}-activity`, ACTIVITY_SPACING);
    }
    if (stateChanged) { tellSpaced(`task-${notice.task}-state`); tellSpaced("state"); }
    tellSpaced("news");
  }

  function received(message) {
    let notice;
    try { notice = JSON.parse(message.data) || {}; } catch { return; }
    if (notice.hello) greeted(notice);
    else if (notice.refresh) { state.upto = state.hello; tell("refresh"); }
    else if (Number.isInteger(notice.task)) {
      if (state.upto !== null && typeof notice.upto === "string") state.upto = notice.upto;
      pass(notice);
    }
  }

  // The first time, things may have changed between the page and the socket. Later on, what was missed
  // follows as notices, or as one that says to fetch everything.
  function greeted(hello) {
    state.hello = hello.upto;
    if (state.upto !== null) return;
    state.upto = hello.upto;
    tell("refresh");
  }

  function connected() {
    state.tries = 0;
    state.opened = true;
    clearInterval(state.poll);
    state.poll = null;
    document.getElementById("connection").hidden = true;
  }

  const LOGIN_NEEDED = 4401;

  async function lost(event) {
    const refused = !state.opened;
    state.socket = null;
    if (state.leaving) return;
    if (event.code === LOGIN_NEEDED) { leaveToLogin(); return; }
    document.getElementById("connection").hidden = false;
    state.poll ??= setInterval(() => tell("refresh"), POLL);
    const wait = Math.min(LONGEST_WAIT, 500 * 2 ** state.tries++);
    setTimeout(connect, wait * (0.75 + Math.random() / 2));
    // A browser is not told why a handshake was refused; a page that leads to the login tells.
    if (refused && await loggedOut()) leaveToLogin();
  }

  async function loggedOut() {
    try {
      const answer = await fetch("/navigation/", { redirect: "manual", headers: { "HX-Request": "true" } });
      return answer.type === "opaqueredirect";
    } catch { return false; }
  }

  // Whoever is logged out comes back to this page by the login. What was typed is not thrown away for it.
  const isTyped = (field) =>
    field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked
      : /^(text|search|url|email|textarea)$/.test(field.type) && field.value !== field.defaultValue;

  function leaveToLogin() {
    state.leaving = true;
    clearInterval(state.poll);
    if (![...document.querySelectorAll("main input, main textarea")].some(isTyped)) { location.reload(); return; }
    const place = document.getElementById("connection");
    const link = document.createElement("a");
    link.href = location.href;
    link.target = "_blank";
    link.textContent = "Log in again";
    place.replaceChildren("You are logged out. ", link, " in a new tab, then continue here.");
    place.hidden = false;
  }

  document.addEventListener("catherder:logged-out", () => { if (!state.leaving) leaveToLogin(); });

  function connect() {
    if (state.socket || state.leaving) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const after = state.upto === null ? "" : `?after=${encodeURIComponent(state.upto)}`;
    state.opened = false;
    state.socket = new WebSocket(`${scheme}://${location.host}/ws/live/${after}`);
    state.socket.onopen = connected;
    state.socket.onmessage = received;
    state.socket.onclose = lost;
  }

  addEventListener("pagehide", () => { state.leaving = true; state.socket?.close(); });
  addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    state.leaving = false;
    tell("refresh");
    connect();
  });
  addEventListener("online", connect);
  document.addEventListener("htmx:afterOnLoad", connect); // the server answers again: no need to wait longer
  addEventListener("DOMContentLoaded", connect);
})();
