// Replaces the pictures of a report page by charts that can be read with pointer and keyboard, sorts tables, copies
// commands. The page is complete without it.
(() => {
  "use strict";
  const root = document.documentElement;
  const plots = [];

  // Colours of the style sheet, resolved for the current theme.
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  let colours = new Map();
  const colour = (name) => {
    if (!colours.has(name)) {
      probe.style.color = `var(--${name})`;
      colours.set(name, getComputedStyle(probe).color);
    }
    return colours.get(name);
  };
  const faded = (name, alpha) => {
    const text = colour(name);
    return text.startsWith("rgb(") ? text.replace("rgb(", "rgba(").replace(")", `, ${alpha})`) : text;
  };

  const short = (value) => {
    const size = Math.abs(value);
    const decimals = size === 0 || size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : size >= 0.01 ? 3 : 4;
    const text = value.toFixed(decimals);
    return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  };
  const scaled = (value, units, from) => {
    let [unit, scale] = units[0];
    for (const [name, size] of units) if (Math.abs(value) >= size && (Math.abs(value) >= from || size === 1)) [unit, scale] = [name, size];
    return short(value / scale) + unit;
  };
  const formats = {
    number: (value) => scaled(value, [["", 1], ["k", 1e3], ["M", 1e6], ["G", 1e9]], 1e4),
    bytes: (value) => scaled(value, [[" B", 1], [" KiB", 1024], [" MiB", 2 ** 20], [" GiB", 2 ** 30], [" TiB", 2 ** 40]], 1024),
    ns: (value) => scaled(value, [[" ns", 1], [" µs", 1e3], [" ms", 1e6], [" s", 1e9]], 1e3),
  };
  const exact = (axis, value) => (axis.quantity === "number" && Math.abs(value) >= 1e4 ? Math.round(value).toLocaleString("en") : formats[axis.quantity](value));

  const element = (name, className, text) => {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // One common list of x values; a series has null where it has no point.
  const joined = (series) => {
    const xs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
    const at = new Map(xs.map((x, index) => [x, index]));
    const spread = (one, values) => {
      const column = new Array(xs.length).fill(null);
      one.x.forEach((x, index) => { column[at.get(x)] = values[index] ?? null; });
      return column;
    };
    return {
      data: [xs, ...series.map((one) => spread(one, one.y))],
      low: series.map((one) => (one.low.length ? spread(one, one.low) : null)),
      high: series.map((one) => (one.high.length ? spread(one, one.high) : null)),
    };
  };

  const scaleOf = (axis, isX, xs) => ({
    time: false,
    distr: axis.log ? 3 : 1,
    log: axis.log === 2 ? 2 : 10,
    // The whole range, unless the user has zoomed in.
    range: (_, low, high) => (!isX || low == null || (low === xs[0] && high === xs[xs.length - 1]) ? axis.range : [low, high]),
  });

  const axisOf = (axis, isX) => {
    const made = {
      stroke: () => colour("muted"),
      font: "12px system-ui, sans-serif",
      labelFont: "12px system-ui, sans-serif",
      label: axis.label,
      labelSize: 20,
      size: isX ? 36 : 58,
      gap: isX ? 8 : 5,
      grid: { stroke: () => colour("grid"), width: 1 },
      ticks: { show: false },
      values: (_, splits) => splits.map((value) => (value == null ? "" : formats[axis.quantity](value))),
    };
    if (axis.fixed || axis.log || axis.quantity === "bytes") {
      const labels = new Map(axis.ticks);
      made.splits = (u) => {
        const scale = u.scales[isX ? "x" : "y"];
        const seen = axis.ticks.filter(([value]) => value >= scale.min * (scale.min > 0 ? 0.999 : 1.001) && value <= scale.max * 1.001);
        // Labels of a narrow chart must not overlap.
        const longest = Math.max(1, ...seen.map(([, label]) => label.length));
        const fits = isX ? Math.max(1, Math.floor((u.width - 80) / (longest * 6.6 + 10))) : seen.length;
        const every = Math.ceil(seen.length / fits);
        return seen.map(([value]) => value).filter((_, index) => index % every === 0);
      };
      made.values = (_, splits) => splits.map((value) => labels.get(value) ?? "");
      made.filter = (_, splits) => splits;
    }
    return made;
  };

  const seriesOf = (one) => {
    const name = `c${one.colour}`;
    const made = { label: one.name, scale: "y", stroke: () => colour(name), width: one.kind === "trace" ? 1.4 : 2, spanGaps: one.kind !== "dots" };
    if (one.kind === "dashed") made.dash = [6, 4];
    if (one.kind === "dots") {
      made.paths = () => null;
      made.points = { show: true, size: 3, width: 0, fill: () => faded(name, 0.75) };
    } else {
      made.points = { show: one.kind !== "trace", size: 6, width: 0, fill: () => colour(name) };
    }
    return made;
  };

  const intervals = (chart, columns) => (u) => {
    const { ctx } = u;
    const ratio = devicePixelRatio || 1;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.clip();
    ctx.lineWidth = 1.3 * ratio;
    chart.series.forEach((one, index) => {
      const low = columns.low[index];
      if (!low || !u.series[index + 1].show) return;
      ctx.strokeStyle = colour(`c${one.colour}`);
      ctx.beginPath();
      low.forEach((value, at) => {
        const end = columns.high[index][at];
        if (value == null || end == null) return;
        const x = u.valToPos(columns.data[0][at], "x", true);
        const bottom = Math.max(value, u.scales.y.min);
        const [from, to] = [u.valToPos(bottom, "y", true), u.valToPos(end, "y", true)];
        const cap = 3.5 * ratio;
        ctx.moveTo(x, from); ctx.lineTo(x, to);
        ctx.moveTo(x - cap, from); ctx.lineTo(x + cap, from);
        ctx.moveTo(x - cap, to); ctx.lineTo(x + cap, to);
      });
      ctx.stroke();
    });
    if (chart.marks.length) {
      ctx.strokeStyle = colour("muted");
      ctx.setLineDash([2 * ratio, 4 * ratio]);
      ctx.beginPath();
      for (const [value] of chart.marks) {
        const x = u.valToPos(value, "x", true);
        ctx.moveTo(x, u.bbox.top); ctx.lineTo(x, u.bbox.top + u.bbox.height);
      }
      ctx.stroke();
    }
    ctx.restore();
  };

  const tickText = (axis, value) => {
    const tick = axis.fixed && axis.ticks.find(([at]) => at === value);
    return tick ? tick[1] : exact(axis, value);
  };

  // The values under the cursor, as lines of name and value.
  const valuesAt = (u, chart, columns, at) => chart.series.flatMap((one, index) => {
    const value = columns.data[index + 1][at];
    if (value == null || !u.series[index + 1].show) return [];
    const low = columns.low[index]?.[at];
    const high = columns.high[index]?.[at];
    const ends = low == null || high == null ? "" : ` (${exact(chart.y, low)} to ${exact(chart.y, high)})`;
    return [[one, exact(chart.y, value) + ends]];
  });

  const build = (figure) => {
    const chart = JSON.parse(figure.querySelector("script").textContent);
    const holder = figure.querySelector(".plot");
    const columns = joined(chart.series);
    const xs = columns.data[0];
    const tip = element("div", "tip");
    tip.hidden = true;
    const live = element("output", "sr");
    let byKey = false;

    const show = (u) => {
      const at = u.cursor.idx;
      const lines = at == null || u.cursor.left < 0 ? [] : valuesAt(u, chart, columns, at);
      tip.hidden = lines.length === 0;
      if (tip.hidden) return;
      const place = tickText(chart.x, xs[at]);
      const unit = chart.y.quantity === "number" ? `, ${chart.y.label}` : "";
      tip.replaceChildren(element("b", "", `${place}${unit}`), ...lines.map(([one, value]) => {
        const line = element("div", `s${one.colour} ${one.kind}`);
        line.append(element("span", "swatch"), element("span", "name", one.name), element("span", "", value));
        return line;
      }));
      if (byKey) live.textContent = `${place}${unit}: ${lines.map(([one, value]) => `${one.name} ${value}`).join("; ")}`;
      const x = u.valToPos(xs[at], "x");
      const isRight = x > u.over.clientWidth / 2;
      tip.style.left = isRight ? "auto" : `${x + 12}px`;
      tip.style.right = isRight ? `${u.over.clientWidth - x + 12}px` : "auto";
      tip.style.top = "4px";
    };

    const size = () => {
      const width = Math.max(220, Math.floor(holder.clientWidth));
      return { width, height: Math.round(Math.min(340, Math.max(230, width * 0.56))) };
    };
    const options = {
      ...size(),
      padding: [10, 14, 0, 0],
      legend: { show: false },
      scales: { x: scaleOf(chart.x, true, xs), y: scaleOf(chart.y, false, xs) },
      axes: [axisOf(chart.x, true), axisOf(chart.y, false)],
      series: [{}, ...chart.series.map(seriesOf)],
      cursor: { y: false, points: { size: 8 }, drag: { x: true, y: false }, ...(chart.group ? { sync: { key: chart.group, setSeries: false } } : {}) },
      hooks: { draw: [intervals(chart, columns)], setCursor: [show] },
    };
    const u = new uPlot(options, columns.data, holder);
    u.over.append(tip);
    holder.append(live);
    figure.classList.add("live");

    holder.tabIndex = 0;
    holder.setAttribute("role", "group");
    holder.setAttribute("aria-label", `${chart.title}. Arrow keys read the values.`);
    let at = -1;
    holder.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1, Home: -xs.length, End: xs.length }[event.key];
      if (event.key === "Escape") {
        at = -1;
        u.setCursor({ left: -10, top: -10 });
        u.setScale("x", { min: xs[0], max: xs[xs.length - 1] });
      } else if (step !== undefined) {
        at = Math.min(xs.length - 1, Math.max(0, at + step));
        byKey = true;
        u.setCursor({ left: u.valToPos(xs[at], "x"), top: 10 });
        byKey = false;
      } else {
        return;
      }
      event.preventDefault();
    });
    holder.addEventListener("blur", () => u.setCursor({ left: -10, top: -10 }));

    figure.querySelectorAll(".legend li").forEach((item, index) => {
      const button = element("button");
      button.type = "button";
      button.append(...item.childNodes);
      button.setAttribute("aria-pressed", "true");
      button.addEventListener("click", () => {
        const isShown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(isShown));
        u.setSeries(index + 1, { show: isShown });
      });
      item.append(button);
    });

    // In the next frame: a change of the size within the notification would cause another one.
    new ResizeObserver(() => requestAnimationFrame(() => {
      const next = size();
      if (next.width !== u.width) u.setSize(next);
    })).observe(holder);
    plots.push(u);
  };

  for (const figure of document.querySelectorAll("figure:has(> script)")) build(figure);
  root.dataset.charts = String(plots.length);

  // A new theme has new colours.
  const repaint = () => {
    colours = new Map();
    for (const u of plots) u.redraw(false, true);
  };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", repaint);
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
    root.dataset.theme = isDark ? "light" : "dark";
    repaint();
  });

  // Tables of several rows are sorted by a click on a head: numbers with their units, else text.
  const units = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, bytes: 1, B: 1, KiB: 1024, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };
  const valueOf = (text) => {
    const [, number, unit] = /^([−+-]?[\d.]+)\s*(\S*)/.exec(text.trim()) ?? [];
    return number === undefined ? NaN : Number(number.replace("−", "-")) * (units[unit] ?? 1);
  };
  for (const table of document.querySelectorAll("table.figures")) {
    const body = table.tBodies[0];
    if (body.rows.length < 3) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = element("button", "", head.textContent);
      button.type = "button";
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const isUp = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
        const key = (row) => row.cells[column].textContent;
        const order = (a, b) => {
          const [x, y] = [valueOf(key(a)), valueOf(key(b))];
          if (Number.isNaN(x) && Number.isNaN(y)) return key(a).localeCompare(key(b));
          return Number.isNaN(x) ? 1 : Number.isNaN(y) ? -1 : x - y;
        };
        const rows = [...body.rows].sort(order);
        body.append(...(isUp ? rows : rows.reverse()));
      });
    });
  }

  for (const block of document.querySelectorAll("pre.command")) {
    if (!navigator.clipboard) break;
    const text = block.textContent;
    const button = element("button", "", "Copy");
    button.type = "button";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }

  // The section in view is marked in the navigation.
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const id of links.keys()) watch.observe(document.getElementById(id));
})();
