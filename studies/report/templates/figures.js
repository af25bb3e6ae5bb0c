"use strict";
// Replaces the static image of each figure by the interactive one when it comes near the screen.
(() => {
  const element = (tag, attributes, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  };

  const drawing = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
    made.append(...children);
    return made;
  };
  const sample = (paths) => drawing("svg", { viewBox: "0 0 28 10", "aria-hidden": true },
    ...paths.map((path) => drawing("path", { "vector-effect": "non-scaling-stroke", ...path })));

  // the values of a column; one of texts is the list of distinct texts, followed by positions in it
  const decode = (column) => Array.isArray(column[0])
    ? column.slice(1).map((code) => column[0][code] ?? null) : column;
  const records = (columns) => {
    const names = Object.keys(columns), values = Object.values(columns).map(decode);
    return (values[0] ?? []).map((_, row) => Object.fromEntries(names.map((name, i) => [name, values[i][row]])
      .filter(([, value]) => value !== null)));
  };

  async function show(figure) {
    const shown = JSON.parse(figure.querySelector("script").textContent);
    const data = Object.fromEntries(Object.entries(shown.data).map(([name, table]) => [name, records(table)]));
    const image = figure.querySelector("img");
    const place = element("div", { className: "chart", tabIndex: 0 });
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", `${image.alt} Arrow keys read the values.`);
    const value = element("output", { className: "value" });
    const controls = element("div", { className: "controls" });
    const { lines, samples } = shown;
    let view, chosen = new Set(shown.first), picked = shown.picks[0], read = -1;

    const update = () => {
      read = -1;
      boxes.forEach((box) => { box.checked = chosen.has(box.value); });
      count.textContent = `Lines (${chosen.size} of ${lines.length})`;
      if (lines.length) view.signal("chosen", [...chosen]);
      if (shown.picks.length) view.signal("picked", picked);
      return view.runAsync();
    };
    const choose = (names) => { chosen = new Set(names); return update(); };
    const toggle = (name) => { if (!chosen.delete(name)) chosen.add(name); return update(); };

    async function draw(scale) {
      const spec = { ...shown.scales[scale], description: image.alt, datasets: structuredClone(data) };
      const made = await vegaEmbed(place, spec, { ast: true, actions: false, renderer: "svg" });
      view?.finalize();
      view = made.view;
      place.querySelector("svg").setAttribute("aria-label", image.alt);
      view.addEventListener("click", (event, item) => {
        const line = item?.datum?.series;
        if (lines.includes(line)) toggle(line);
      });
      await update();
    }

    const count = element("summary", {});
    const boxes = lines.map((name) => element("input",
      { type: "checkbox", value: name, onchange: () => toggle(name) }));
    if (lines.length) controls.append(element("details", { className: "lines" }, count,
      ...boxes.map((box, i) => element("label", {}, box, sample(samples[i]), ` ${box.value} `)),
      element("button", { type: "button", textContent: "all", onclick: () => choose(lines) }),
      element("button", { type: "button", textContent: "as at first", onclick: () => choose(shown.first) })));

    if (shown.picks.length) {
      const picks = element("select", { onchange: () => { picked = picks.value; update(); } },
        ...shown.picks.map((name) => element("option", { value: name, textContent: name })));
      controls.append(element("label", {}, "At ", picks));
    }

    const scales = Object.keys(shown.scales);
    if (scales.length > 1) {
      const scale = element("select", { onchange: () => draw(scale.value) },
        ...scales.map((name) => element("option", { value: name, textContent: name })));
      controls.append(element("label", {}, "Vertical scale ", scale));
    }

    // reads the points of the chosen lines
    place.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") choose(shown.first);
      if (!step) return;
      event.preventDefault();
      const rows = Object.values(data).flat().filter((row) =>
        row.series !== undefined && (row.y ?? row.exact) !== undefined && (!row.pick || row.pick === picked)
        && (!lines.includes(row.series) || chosen.has(row.series)));
      read = (read + step + rows.length) % rows.length;
      const row = rows[read];
      const error = row.at_least !== undefined ? ` [${row.at_least}, ${row.at_most}]`
        : row.mcse === undefined ? "" : ` ± ${row.mcse}`;
      value.textContent = [row.axes, row.series, `at ${row.x}: ${row.y ?? row.exact}${error}`,
        row.trials === undefined ? "" : `${row.trials} trials`].filter(Boolean).join(", ");
    });

    await draw(scales[0]);
    image.before(controls, place, value);
    image.hidden = true;
  }

  const near = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    near.unobserve(entry.target);
    show(entry.target);
  }), { rootMargin: "600px" });
  document.querySelectorAll("figure").forEach((figure) => near.observe(figure));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => { part.open = true; }));
})();
