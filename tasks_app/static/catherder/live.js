// One WebSocket for the page. A notice says only that a task has news: it becomes events on the body,
// on which the parts of the page fetch themselves again. Without a socket they are told every 5 s.
//
//   catherder:task-12-state   phase, questions or settings of task 12 changed
//   catherder:task-12-events  its log has more
//   catherder:state           the state of some task changed
//   catherder:news            anything happened
//   catherder:refresh         notices may have been missed: everything fetches itself again
(() => {
  "use strict";
  document.documentElement.classList.add("js");

  const POLL = 5000;
  const LONGEST_WAIT = 15000;
  const SPACING = 200;
  const state = { socket: null, tries: 0, poll: null, leaving: false };

  const tell = (name) => document.body.dispatchEvent(new CustomEvent(`catherder:${name}`));

  // Events of one name are at least SPACING apart; the first goes out at once, the last is never lost.
  const spaced = new Map();
  function tellSpaced(name) {
    const known = spaced.get(name);
    if (known) { known.again = true; return; }
    const entry = { again: false };
    spaced.set(name, entry);
    tell(name);
    setTimeout(() => {
      spaced.delete(name);
      if (entry.again) tellSpaced(name);
    }, SPACING);
  }

  function pass(notice) {
    const kinds = notice.kinds || [];
    const stateChanged = kinds.some((kind) => kind !== "events");
    if (kinds.includes("events")) tellSpaced(`task-${notice.task}-events`);
    if (stateChanged) { tellSpaced(`task-${notice.task}-state`); tellSpaced("state"); }
    tellSpaced("news");
  }

  function received(message) {
    let notice;
    try { notice = JSON.parse(message.data); } catch { return; }
    if (notice.hello) tell("refresh");
    else if (Number.isInteger(notice.task)) pass(notice);
  }

  function connected() {
    state.tries = 0;
    clearInterval(state.poll);
    state.poll = null;
    document.getElementById("connection").hidden = true;
  }

  const LOGIN_NEEDED = 4401;

  function lost(event) {
    state.socket = null;
    if (state.leaving) return;
    if (event.code === LOGIN_NEEDED) { location.reload(); return; }
    document.getElementById("connection").hidden = false;
    state.poll ??= setInterval(() => tell("refresh"), POLL);
    const wait = Math.min(LONGEST_WAIT, 500 * 2 ** state.tries++);
    setTimeout(connect, wait * (0.75 + Math.random() / 2));
  }

  function connect() {
    if (state.socket || state.leaving) return;
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    state.socket = new WebSocket(`${scheme}://${location.host}/ws/live/`);
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
