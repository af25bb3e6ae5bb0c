"use strict";
// Replaces the static image of each figure by the interactive one when it comes near the screen.
(() => {
  const element = (tag, attributes, ...children) => {
    const made = Object.assign(document.createElement(tag), attributes);
    made.append(...children);
    return made;
  };

  const records = ({ names, rows }) => rows.map((row) =>
    Object.fromEntries(row.map((value, i) => [names[i], value]).filter(([, value]) => value !== null)));

  async function show(figure) {
    const shown = JSON.parse(figure.querySelector("script").textContent);
    const data = Object.fromEntries(Object.entries(shown.data).map(([name, table]) => [name, records(table)]));
    const image = figure.querySelector("img");
    const place = element("div", { className: "chart", tabIndex: 0 });
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", `${image.alt} Arrow keys read the values.`);
    const value = element("output", { className: "value" });
    const controls = element("div", { className: "controls" });
    let view, isolated = null, read = -1;

    const isolate = (line) => {
      isolated = line;
      lines.value = line ?? "";
      read = -1;
      return view.signal("isolated", line).runAsync();
    };

    async function draw(scale) {
      const spec = { ...shown.scales[scale], description: image.alt, datasets: structuredClone(data) };
      const made = await vegaEmbed(place, spec, { ast: true, actions: false, renderer: "svg" });
      view?.finalize();
      view = made.view;
      place.querySelector("svg").setAttribute("aria-label", image.alt);
      view.addEventListener("click", (event, item) => {
        const line = item?.datum?.series ?? null;
        isolate(shown.lines.includes(line) && line !== isolated ? line : null);
      });
      await isolate(isolated);
    }

    const lines = element("select", { onchange: () => isolate(lines.value || null) },
      element("option", { value: "", textContent: "all lines" }),
      ...shown.lines.map((name) => element("option", { value: name, textContent: name })));
    if (shown.lines.length) controls.append(element("label", {}, "Show ", lines));

    const scales = Object.keys(shown.scales);
    if (scales.length > 1) {
      const scale = element("select", { onchange: () => draw(scale.value) },
        ...scales.map((name) => element("option", { value: name, textContent: name })));
      controls.append(element("label", {}, "Vertical scale ", scale));
    }

    // reads the points of the isolated line, or of all lines
    place.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") isolate(null);
      if (!step) return;
      event.preventDefault();
      const rows = Object.values(data).flat().filter((row) =>
        row.series && (row.y ?? row.exact) !== undefined && (isolated === null || row.series === isolated));
      read = (read + step + rows.length) % rows.length;
      const row = rows[read], error = row.mcse === undefined ? "" : ` ± ${row.mcse}`;
      value.textContent = [row.axes, row.series, `at ${row.x}: ${row.y ?? row.exact}${error}`,
        row.trials === undefined ? "" : `${row.trials} trials`].filter(Boolean).join(", ");
    });

    image.before(controls, place, value);
    await draw(scales[0]);
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
