"use strict";
// Charts in place of the drawings: the page's tables by Vega. Without this script the drawings stand.
(() => {
  const source = document.getElementById("charts-data");
  if (!source || typeof window.vegaEmbed !== "function") return;
  const charts = JSON.parse(source.textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const MANY = 1500; // places of a panel that are drawn as pixels
  const STEP = 0.2; // of a panel's width and height, by one press

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function rowsOf(columns) {
    const names = Object.keys(columns);
    const cell = (column, at) => (Array.isArray(column) ? column[at] : column.of[column.at[at]]);
    const first = columns[names[0]];
    const length = (Array.isArray(first) ? first : first.at).length;
    return Array.from({ length }, (_, at) =>
      Object.fromEntries(names.map((name) => [name, cell(columns[name], at)])));
  }

  function config() {
    const [ink, soft, line] = ["--ink", "--soft", "--line"].map(colour);
    const font = getComputedStyle(document.body).fontFamily;
    return {
      // For screen readers there are the panel's name and the table below it.
      aria: false, background: null, font,
      mark: { aria: false },
      view: { stroke: null },
      axis: {
        aria: false,
        labelColor: soft, titleColor: ink, gridColor: line, domainColor: soft, tickColor: soft,
        labelFontSize: 12, titleFontSize: 12.5, titleFontWeight: "normal", labelOverlap: "greedy",
      },
    };
  }

  function specOf(panel, chart) {
    const spec = structuredClone(panel.spec);
    spec.data = { values: panel.rows };
    const set = (name, value) => { spec.params.find((one) => one.name === name).value = value; };
    set("page", colour("--page"));
    set("ink", colour("--ink"));
    if (dark.matches) set("colours", chart.dark);
    return spec;
  }

  // Zooms or moves by signals that Vega-Lite makes for a selection bound to scales.
  function look(view, axis, from, to) {
    try {
      const scale = view.scale(axis);
      const [first, last] = scale.range();
      const at = (share) => scale.invert(first + share * (last - first));
      view.signal(`zoom_${axis}`, [at(from), at(to)]);
    } catch (error) { /* an axis of words has no zoom */ }
  }

  function lookAt(view, moves) {
    for (const [axis, from, to] of moves) look(view, axis, from, to);
    return view.runAsync();
  }

  function reset(view) {
    for (const axis of ["x", "y"]) {
      try { view.signal(`zoom_${axis}`, null); } catch (error) { /* likewise */ }
    }
    return view.runAsync();
  }

  const IN = ["x", "y"].map((axis) => [axis, STEP, 1 - STEP]);
  const OUT = ["x", "y"].map((axis) => [axis, -STEP, 1 + STEP]);
  // Both axes, as the selection is none without either.
  const moved = (x, y) => [["x", x, 1 + x], ["y", y, 1 + y]];
  const KEYS = {
    "+": IN, "=": IN, "-": OUT,
    ArrowLeft: moved(-STEP, 0), ArrowRight: moved(STEP, 0), ArrowUp: moved(0, STEP), ArrowDown: moved(0, -STEP),
  };

  class Chart {
    constructor(part) {
      this.part = part;
      this.data = charts[part.dataset.chart];
      this.plots = Array.from(part.querySelectorAll(".plot"));
      this.views = [];
      this.data.panels.forEach((panel) => { panel.rows = rowsOf(panel.columns); });
      part.querySelectorAll("input[type=checkbox]").forEach((box) =>
        box.addEventListener("change", () => this.hide()));
      part.querySelectorAll("[data-zoom]").forEach((button) =>
        button.addEventListener("click", () => this.zoom(button.dataset.zoom)));
      this.plots.forEach((plot, at) => plot.addEventListener("keydown", (event) => this.key(event, at)));
    }

    async draw() {
      this.views.forEach((view) => view.finalize());
      const options = { mode: "vega-lite", actions: false, ast: true, config: config() };
      this.views = await Promise.all(this.plots.map(async (plot, at) => {
        const panel = this.data.panels[at];
        const renderer = panel.rows.length > MANY ? "canvas" : "svg";
        const tooltip = { disableDefaultStyle: true };
        const { view } = await window.vegaEmbed(plot, specOf(panel, this.data), { ...options, renderer, tooltip });
        view.addEventListener("click", (event, item) => this.open(item));
        return view;
      }));
      await this.hide();
      this.part.dataset.drawn = "yes";
    }

    hide() {
      const boxes = Array.from(this.part.querySelectorAll("input[type=checkbox]"));
      const hidden = boxes.filter((box) => !box.checked).map((box) => box.value);
      return Promise.all(this.views.map((view) => view.signal("hidden", hidden).runAsync()));
    }

    zoom(how) {
      return Promise.all(this.views.map((view) =>
        how === "reset" ? reset(view) : lookAt(view, how === "in" ? IN : OUT)));
    }

    key(event, at) {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.views[at]) return;
      if (event.key === "0") reset(this.views[at]);
      else if (KEYS[event.key]) lookAt(this.views[at], KEYS[event.key]);
      else return;
      event.preventDefault();
    }

    // The row of a point, which links its run's page.
    open(item) {
      const target = item && item.datum && item.datum.target;
      if (target && document.getElementById(target)) location.hash = encodeURIComponent(target);
    }
  }

  const shown = new Map();
  let turn = Promise.resolve(); // one drawing after the other: none is begun while its chart is drawn
  function show(part) {
    if (shown.has(part)) return;
    shown.set(part, new Chart(part));
    part.hidden = false;
    part.closest("figure").classList.add("live");
    draw(part);
  }

  function draw(part) {
    turn = turn.then(() => shown.get(part)?.draw()).catch((error) => { // then the drawing stands
      shown.delete(part);
      part.hidden = true;
      part.closest("figure").classList.remove("live");
      console.error(error);
    });
  }

  const near = new IntersectionObserver((entries) => {
    entries.filter((one) => one.isIntersecting).forEach((one) => {
      near.unobserve(one.target);
      show(one.target.querySelector(".chart"));
    });
  }, { rootMargin: "600px 0px" });
  document.querySelectorAll(".chart").forEach((part) => near.observe(part.closest("figure")));
  dark.addEventListener("change", () => shown.forEach((_, part) => draw(part)));
})();
