// What a script is for here: when a part of the page changed, fetch that part and put it in place, with the focus, the
// scroll position and what was unfolded as they were. And a clock, and keys. Without it every page can be read and used.
"use strict";
(() => {
  const body = document.body;
  const live = document.getElementById("live");
  const clock = document.getElementById("clock");
  const lost = document.getElementById("lost");
  const lostAt = document.getElementById("lost-at");
  const isPaused = live.dataset.paused === "yes";
  const LEAST_PAUSE_MS = 2000;
  const RETRY_MS = 5000;
  const ANSWER_MS = 15_000;
  const LOST_SECONDS = 15;

  // ---- the clock, and whether what is shown is true now
  const startedAt = Date.parse(clock.dateTime);
  const since = performance.now();
  let staleSince = null;

  function tick() {
    const now = new Date(startedAt + performance.now() - since);
    clock.textContent = now.toISOString().slice(11, 19);
    if (isPaused || !("after" in body.dataset)) return;
    const seconds = staleSince === null ? 0 : Math.round((performance.now() - staleSince) / 1000);
    live.textContent = staleSince === null ? "live" : `stale ${seconds} s`;
    live.className = staleSince === null ? "ok" : "warn";
    tellIfLost(seconds >= LOST_SECONDS);
  }

  // Old figures must not appear current, neither on a wall screen nor in the title of a tab.
  function tellIfLost(isLost) {
    if (lost.hidden === !isLost) return;
    lost.hidden = !isLost;
    document.getElementById("main").classList.toggle("old", isLost);
    document.title = isLost ? `? ${document.title}` : document.title.replace(/^\? /, "");
    if (isLost) lostAt.textContent = new Date(startedAt + staleSince - since).toISOString().slice(11, 19);
  }
  function fresh() { staleSince = null; tick(); }
  function stale(at = performance.now()) { staleSince ??= at; tick(); }

  // ---- parts of the page
  const due = new Map(); // the name of a part → when it was last fetched, or is to be

  function address(part) {
    const url = new URL(location.href);
    url.searchParams.set("fragment", part.dataset.fragment);
    if (part.dataset.seen) url.searchParams.set("seen", part.dataset.seen);
    return url;
  }

  async function refresh(name) {
    const part = document.querySelector(`[data-fragment="${name}"]`);
    if (!part) return;
    const signal = AbortSignal.timeout(ANSWER_MS); // one that hangs would never say so
    const answer = await fetch(address(part), { credentials: "same-origin", redirect: "error", signal });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.querySelector(`[data-fragment="${name}"]`);
    if (next) swap(part, next);
  }

  function swap(part, next) {
    const selected = getSelection();
    // Keep the text that the user is copying.
    if (selected && !selected.isCollapsed && part.contains(selected.anchorNode)) return later(part.dataset.fragment);
    for (const one of part.querySelectorAll("details[id]")) {
      const same = next.querySelector(`#${CSS.escape(one.id)}`);
      if (same) same.open = one.open;
    }
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const place = focused ? [...part.querySelectorAll("a, button, summary, input, select")].indexOf(focused) : -1;
    part.replaceWith(next);
    if (focused) {
      const same = focused.id && document.getElementById(focused.id);
      const other = next.querySelectorAll("a, button, summary, input, select")[place];
      (same || other)?.focus({ preventScroll: true });
    }
    if (next.dataset.title) document.title = next.dataset.title;
  }

  function later(name, wait = 200) {
    const last = due.get(name) ?? -Infinity;
    const now = performance.now();
    if (last > now) return; // it is to be fetched anyway
    const at = Math.max(now + wait, last + LEAST_PAUSE_MS);
    due.set(name, at);
    // One that was asked for before and hung until now says nothing of the one that was asked for since.
    const lost = () => { if (due.get(name) === at) stale(); };
    setTimeout(() => refresh(name).then(() => { if (isConnected()) fresh(); }, lost), at - now);
  }

  function changed(topic) {
    for (const one of document.querySelectorAll("[data-fragment]")) {
      if (topic === null || one.dataset.topics.split(" ").includes(topic)) later(one.dataset.fragment);
    }
  }

  // ---- what happens, as it happens
  let stream = null;
  let retrying = null;
  let lastId = body.dataset.after;
  let heardAt = null;
  let silenceMs = 37_500; // until the server has said how often it speaks
  const isConnected = () => stream !== null && stream.readyState === EventSource.OPEN;

  function follow() {
    clearTimeout(retrying);
    stream?.close();
    stream = new EventSource(`/api/v1/events?after=${encodeURIComponent(lastId)}`);
    heardAt = performance.now();
    const on = (kind, act) => stream.addEventListener(kind, (event) => { heardAt = performance.now(); act(event); });
    let wasOpen = false;
    on("open", () => {
      if (staleSince !== null || wasOpen) changed(null); // what was missed meanwhile
      wasOpen = true;
      fresh();
    });
    on("ready", (event) => {
      const seconds = JSON.parse(event.data).alive_every_seconds;
      if (seconds) silenceMs = 2500 * seconds; // a replica of an earlier version does not say
    });
    on("alive", () => {});
    on("changed", (event) => {
      lastId = event.lastEventId || lastId;
      changed(JSON.parse(event.data).topic);
    });
    on("reset", (event) => {
      lastId = event.lastEventId || lastId;
      changed(null);
    });
    // The database, which all else comes from: the parts say so themselves, from memory.
    on("unavailable", () => changed(null));
    on("available", () => changed(null));
    stream.addEventListener("error", () => {
      stale();
      // Refused, not lost: the browser would never try again by itself.
      if (stream.readyState === EventSource.CLOSED) retrying = setTimeout(follow, RETRY_MS);
    });
  }

  // A connection that froze is no error to the browser, and stays open for ever.
  function listen() {
    if (performance.now() - heardAt < silenceMs) return;
    stale(heardAt);
    follow();
  }

  if (!isPaused && "after" in body.dataset) {
    follow();
    setInterval(listen, 1000);
    // Ages and the chart move on also when nothing happens.
    setInterval(() => { if (!document.hidden) changed(null); }, 60_000);
    document.addEventListener("visibilitychange", () => { if (!document.hidden) changed(null); });
    addEventListener("pagehide", () => stream?.close());
    addEventListener("pageshow", (event) => { if (event.persisted) { follow(); changed(null); } });
  }
  if (!isPaused && !("after" in body.dataset)) live.textContent = "as loaded";
  setInterval(tick, 1000);

  // ---- keys
  const GO = { n: "/", l: "/letters", w: "/workers", q: "/queues", f: "/flows", t: "/topology" };
  const help = document.getElementById("keys");
  let isGoing = false;

  function step(by) {
    const links = [...document.querySelectorAll("[data-row]")].map((row) => row.querySelector("a")).filter(Boolean);
    if (!links.length) return;
    const here = links.findIndex((link) => link.closest("[data-row]").contains(document.activeElement));
    const there = here < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, here + by));
    links[there].focus();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target.closest("input, textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (isGoing) {
      isGoing = false;
      if (GO[event.key]) location.href = GO[event.key];
      return;
    }
    switch (event.key) {
      case "g": isGoing = true; setTimeout(() => { isGoing = false; }, 1500); break;
      case "j": step(1); break;
      case "k": step(-1); break;
      case "?": help.showModal(); break;
      case "/": {
        event.preventDefault();
        const search = document.getElementById("search");
        if (search) { search.closest("details").open = true; search.focus(); }
        else location.href = "/letters#search";
        break;
      }
    }
  });
  document.getElementById("keys-hint").hidden = false;

  // ---- on a phone the letters come before the fields to filter them with
  const filtering = document.getElementById("filtering");
  const narrow = matchMedia("(max-width: 760px)");
  // Also when a phone is turned: wide, there is nothing to unfold them by.
  const fold = () => { if (filtering && location.hash !== "#search") filtering.open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();

  // ---- a link to something folded unfolds it
  function unfold() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    const folded = target.closest("details");
    if (folded) folded.open = true;
    if (target.matches("input")) target.focus();
  }
  addEventListener("hashchange", unfold);
  unfold();
})();
