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

  // places the names of a legend without headings of groups in a column that is `width` pixels wide
  const flow = (entries, width) => {
    let x = 0, row = -1;
    const placed = entries.filter((entry, i) => entry.series || i === 0).map((entry) => {
      const needed = entry.series ? 50 + 6.5 * entry.series.length : width;
      if (row < 0 || x + needed > width) [x, row] = [0, row + 1];
      const place = { ...entry, x, y: 18 * row };
      x += needed;
      return place;
    });
    return [placed, 18 * (row + 1) - 6];
  };

  // a specification, with its legend, whose axes fill `room` pixels; `drawn` is the width of the original
  const fit = (spec, legend, drawn, room) => {
    const fitted = structuredClone(spec);
    for (const view of fitted.vconcat) {
      if (view.data.name === "legend") {
        if (room < drawn) {
          view.width = room - 75;  // sideways the labels of the vertical axis, and the padding
          [legend, view.height] = flow(legend, view.width);
        }
        continue;
      }
      const axes = view.spec ?? view, before = axes.width;
      let columns = view.facet ? Math.min(view.columns, view.facet.sort.length) : 1;
      const sideways = drawn - columns * before;  // pixels of labels and gaps
      const texts = [...(view.facet?.sort ?? []), ...axes.layer.map(({ encoding }) => encoding.x?.axis?.title ?? "")];
      const least = Math.max(130, 6.5 * Math.max(...texts.map((text) => text.length)));
      if ((room - sideways) / columns < least) view.columns = columns = 1;
      axes.width = Math.max(Math.floor((room - sideways) / columns), 130);
      if (axes.width > before) axes.height = Math.round(axes.height * Math.sqrt(axes.width / before));
      for (const { encoding } of axes.layer) {  // labels at the ends of lines
        [encoding.x, encoding.x2].filter((place) => place?.value >= before).forEach((place) => {
          place.value += axes.width - before;
        });
      }
    }
    return [fitted, legend];
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
    let view, chosen = new Set(shown.first), picked = shown.picks[0], read = -1, current, room;

    const update = () => {
      read = -1;
      figure.classList.toggle("changed", picked !== shown.picks[0]
        || chosen.size !== shown.first.length || shown.first.some((name) => !chosen.has(name)));
      boxes.forEach((box) => { box.checked = chosen.has(box.value); });
      count.textContent = `Lines (${chosen.size} of ${lines.length})`;
      if (lines.length) view.signal("chosen", [...chosen]);
      if (shown.picks.length) view.signal("picked", picked);
      return view.runAsync();
    };
    const choose = (names) => { chosen = new Set(names); return update(); };
    const toggle = (name) => { if (!chosen.delete(name)) chosen.add(name); return update(); };

    async function embed(spec, legend) {
      const datasets = structuredClone(legend ? { ...data, legend } : data);
      const made = await vegaEmbed(place, { ...spec, description: image.alt, datasets },
        { ast: true, actions: false, renderer: "svg" });
      view?.finalize();
      view = made.view;
    }

    async function draw(scale) {
      current = scale;
      await embed(shown.scales[scale], data.legend);
      const drawn = place.querySelector("svg").viewBox.baseVal.width;
      room = figure.clientWidth;
      if (Math.abs(room - drawn) > 8) await embed(...fit(shown.scales[scale], data.legend, drawn, room));
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

    image.before(controls, place, value);
    await draw(scales[0]);
    image.hidden = true;
    let waiting;
    addEventListener("resize", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => { if (Math.abs(figure.clientWidth - room) > 8) draw(current); }, 200);
    });
  }

  const near = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (!entry.isIntersecting) return;
    near.unobserve(entry.target);
    show(entry.target);
  }), { rootMargin: "600px" });
  document.querySelectorAll("figure").forEach((figure) => near.observe(figure));
  document.getElementById("unfold").addEventListener("click",
    () => document.querySelectorAll("main details:not(.lines)").forEach((part) => { part.open = true; }));
})();
