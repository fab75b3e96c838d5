// The page works without this. With it: news by server-sent events, live ages, keys, and a token asked for once.
"use strict";

(() => {
  const TOKEN = "journal-token";
  const LEAST_MS = 1000; // between two looks at the server
  const SHARE = 5; // a look that took long is followed by a rest this many times as long
  const root = document.documentElement;
  const live = document.getElementById("live");
  const past = "past" in document.body.dataset; // nothing ages, and no news comes
  root.classList.add("scripts");

  // -- ages ---------------------------------------------------------------------------------------------------------

  const UNITS = [[86400000, "d"], [3600000, "h"], [60000, "min"], [1000, "s"]];

  function lasted(ms) {
    if (ms < 1000) return "0 s";
    for (let i = 0; i < UNITS.length; i++) {
      const [size, unit] = UNITS[i];
      if (ms < size) continue;
      const whole = Math.floor(ms / size);
      if (i + 1 === UNITS.length) return `${whole} s`;
      const [smaller, name] = UNITS[i + 1];
      const rest = Math.floor((ms % size) / smaller);
      return rest ? `${whole} ${unit} ${rest} ${name}` : `${whole} ${unit}`;
    }
    return "";
  }

  function tick() {
    if (document.hidden || past) return;
    const now = Date.now();
    for (const age of document.querySelectorAll("time[data-since]")) {
      const text = lasted(now - Number(age.dataset.since));
      if (age.textContent !== text) age.textContent = text; // an untouched text costs no layout
    }
  }
  setInterval(tick, 1000);

  // -- news ---------------------------------------------------------------------------------------------------------

  let waiting = 0, looking = false, again = false, rest = LEAST_MS;

  function soon() {
    if (looking || document.hidden) { again = true; return; }
    if (!waiting) waiting = setTimeout(look, rest);
  }

  async function look() {
    waiting = 0;
    looking = true;
    again = false;
    const begun = performance.now();
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, cache: "no-store" });
      if (answer.ok) take(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The feed says by itself that the service is away, and comes back by itself.
    }
    rest = Math.max(LEAST_MS, SHARE * (performance.now() - begun));
    looking = false;
    if (again) soon();
  }

  function take(fresh) {
    const focused = document.activeElement && document.activeElement.id;
    document.title = fresh.title;
    for (const part of document.querySelectorAll("[data-part]")) {
      const next = fresh.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
      if (!next || next.dataset.mark === part.dataset.mark || busy(part)) continue;
      part.replaceWith(document.adoptNode(next));
    }
    if (focused && document.activeElement === document.body) document.getElementById(focused)?.focus();
    prepare();
  }

  function busy(part) {
    // What somebody is writing, or has opened to read, is not taken away under their hands.
    return part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea, button")
      || part.querySelector("details[open]") !== null;
  }

  function listen() {
    const feed = new EventSource("/events");
    feed.addEventListener("open", () => { say("live"); soon(); });
    feed.addEventListener("error", () => {
      say("reconnecting");
      if (feed.readyState === EventSource.CLOSED) { feed.close(); setTimeout(listen, 5000); }
    });
    for (const kind of (document.body.dataset.kinds || "").split(" ")) feed.addEventListener(kind, soon);
    addEventListener("pagehide", () => feed.close(), { once: true });
  }

  function say(text) { if (live && live.textContent !== text) live.textContent = text; }

  if (!past) {
    document.addEventListener("visibilitychange", () => { if (!document.hidden) { tick(); if (again) soon(); } });
    addEventListener("pageshow", (event) => { if (event.persisted) { listen(); soon(); } });
    listen();
  }

  // -- verbs --------------------------------------------------------------------------------------------------------

  function prepare() {
    const token = sessionStorage.getItem(TOKEN);
    const forget = document.getElementById("forget");
    if (forget) forget.hidden = !token;
    for (const field of document.querySelectorAll(".verb input[name=token]")) {
      if (token && !field.value) field.value = token;
      field.closest("label").hidden = Boolean(token);
    }
  }

  document.addEventListener("submit", (event) => {
    const field = event.target.querySelector?.("input[name=token]");
    if (field && field.value) sessionStorage.setItem(TOKEN, field.value);
    const button = event.target.querySelector?.("button");
    if (field && button) setTimeout(() => { button.disabled = true; }); // a double click says a verb once
  });

  document.getElementById("forget")?.addEventListener("click", () => {
    sessionStorage.removeItem(TOKEN);
    for (const field of document.querySelectorAll(".verb input[name=token]")) field.value = "";
    prepare();
  });

  if (document.querySelector("[data-token-refused]")) sessionStorage.removeItem(TOKEN);

  function openNamed() {
    const target = location.hash.startsWith("#verb-") && document.getElementById(location.hash.slice(1));
    if (target) { target.open = true; target.querySelector("input, select, button")?.focus(); }
  }
  addEventListener("hashchange", openNamed);
  document.getElementById("repo")?.addEventListener("change", (event) => event.target.form.submit());

  // -- keys ---------------------------------------------------------------------------------------------------------

  const columns = () => [...document.querySelectorAll(".cards")].filter((c) => c.querySelector("a.id"));

  function move(down, right) {
    const here = document.activeElement?.closest?.(".card");
    const all = columns();
    if (!all.length) return;
    let to;
    if (!here) to = all[0].querySelector("a.id");
    else if (down) to = (down > 0 ? here.nextElementSibling : here.previousElementSibling)?.querySelector("a.id");
    else to = all[all.indexOf(here.parentElement) + right]?.querySelector("a.id");
    if (to) { to.focus(); to.scrollIntoView({ block: "nearest", inline: "nearest" }); }
  }

  document.addEventListener("keydown", (event) => {
    const writing = event.target.matches?.("input, textarea, select");
    if (event.key === "Escape" && writing) { event.target.blur(); return; }
    if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      "/": () => document.getElementById("q")?.select(),
      j: () => move(1, 0), k: () => move(-1, 0), l: () => move(0, 1), h: () => move(0, -1),
      b: () => { location.href = "/"; },
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  });

  prepare();
  openNamed();
})();
