"use strict";
// Load the page again while it is written; what was open, where one was, and a pause are kept meanwhile.

const { written, every } = document.body.dataset;
const EVERY_S = Number(every);
const WRITTEN_S = Number(written);
const LATE = 3;
const KEPT = `scalewatt status ${location.pathname}`;

// Storage may be off: then nothing is kept.
function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function keep(changes) {
  try {
    sessionStorage.setItem(KEPT, JSON.stringify({ ...kept(), ...changes }));
  } catch {
    return;
  }
}

function folded() {
  return Array.from(document.querySelectorAll("details[id]"));
}

function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

// How old the page is; one that was not written for long may have lost its writer.
function showAge() {
  const age = Math.max(0, Date.now() / 1000 - WRITTEN_S);
  document.getElementById("age").textContent = `, ${duration(age)} ago`;
  const stale = document.getElementById("stale");
  const isLate = !kept().paused && age > LATE * EVERY_S + 10;
  if (isLate === stale.hidden) {
    stale.hidden = !isLate;
    stale.textContent = isLate
      ? "It has not been written for longer than it should: the command that writes it may have ended, or the two clocks differ."
      : "";
  }
}

function reload() {
  if (kept().paused) return;
  keep({
    x: scrollX,
    y: scrollY,
    details: Object.fromEntries(folded().map((one) => [one.id, one.open])),
  });
  location.reload();
}

function restore() {
  const { x, y, details } = kept();
  for (const one of folded()) {
    if (details && one.id in details) one.open = details[one.id];
  }
  if (y !== undefined) scrollTo(x, y);
  keep({ x: undefined, y: undefined });
}

function showPause() {
  const button = document.getElementById("pause");
  const paused = Boolean(kept().paused);
  button.hidden = false;
  button.textContent = paused ? "Go on" : "Pause";
  button.setAttribute("aria-pressed", paused);
}

restore();
markWide();
if (EVERY_S > 0) {
  showPause();
  showAge();
  document.getElementById("pause").addEventListener("click", () => {
    keep({ paused: !kept().paused });
    showPause();
    showAge();
  });
  setInterval(showAge, 1000);
  setInterval(reload, 1000 * Math.max(1, EVERY_S));
}
