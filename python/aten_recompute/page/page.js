"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const by = id => document.getElementById(id);
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
  const INCREMENTS = Array.from({length: 46}, (_, i) => 2 ** i);
  const STATES = {
    kept: "kept", dropped: "dropped, computed again later", temporary: "not needed by the backward",
    recomputed: "computed again", backward: "made by the backward", given: "made outside of the regions",
    workspace: "workspace", loss: "the caller's loss", forward: "allocated by the forward",
    between: "between regions",
  };
  // The color of each state is a variable of the style.
  const COLOR = {...Object.fromEntries(Object.keys(STATES).map(name => [name, "--" + name]))};
  let chart, charts = {}, active = {};

  // ---- texts ----

  // Halves go to the even digit, as in texts that Python and C++ write.
  function oneDecimal(number) {
    const below = Math.floor(10 * number);
    const half = 10 * number - below === 0.5;
    return ((half && below % 2 === 0 ? below : Math.round(10 * number)) / 10).toFixed(1);
  }
  function bytes(count) {
    let unit = 0;
    while (Math.abs(count) >= (unit === 0 ? 1023.5 : 1023.95) && unit < UNITS.length - 1) {
      count /= 1024;
      ++unit;
    }
    return (unit === 0 ? Math.round(count) : oneDecimal(count)) + " " + UNITS[unit];
  }
  // A label of an axis: with as many digits as tell it from the next one.
  function axisBytes(count) {
    let unit = 0;
    while (Math.abs(count) >= 1024 && unit < UNITS.length - 1) {
      count /= 1024;
      ++unit;
    }
    return +count.toFixed(3) + " " + UNITS[unit];
  }
  function seconds(time) {
    for (const [unit, factor] of [["s", 1], ["ms", 1e3]])
      if (time * factor >= 1)
        return +(time * factor).toPrecision(3) + " " + unit;
    return +(time * 1e6).toPrecision(3) + " µs";
  }
  const text = index => chart.texts[index];
  const line = source => source.split("/").slice(-2).join("/");
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function node(tag, content, attributes = {}) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes))
      made.setAttribute(name, value);
    for (const each of [content].flat())
      if (each !== undefined && each !== null)
        made.append(each);
    return made;
  }
  const block = row => ({
    name: text(row[0]), kind: text(row[1]), bytes: row[2], begin: row[3], end: row[4], offset: row[5],
    layer: text(row[6]), source: text(row[7]),
  });
  const moment = row => ({name: text(row[0]), kind: text(row[1]), bytes: row[2], layer: text(row[3]), source: text(row[4])});

  // ---- tables ----

  // Returns a table whose columns are {title, value(row), show(row), number, long, bar}.
  function table(rows, columns, caption) {
    const head = node("tr", columns.map((column, i) => {
      const button = node("button", column.title, {type: "button"});
      button.addEventListener("click", () => sort(i));
      return node("th", button, {scope: "col", class: column.number ? "number" : ""});
    }));
    const body = node("tbody");
    const made = node("table", [node("caption", caption, {class: "skip"}), node("thead", head), body]);
    let shown = rows, limit = 200, sorted = -1, falling = false;
    function sort(i) {
      falling = sorted === i ? !falling : !!columns[i].number;
      sorted = i;
      [...head.children].forEach((cell, k) => {
        if (k === i)
          cell.setAttribute("aria-sort", falling ? "descending" : "ascending");
        else
          cell.removeAttribute("aria-sort");
      });
      fill();
    }
    function ordered() {
      if (sorted < 0)
        return shown;
      const {value} = columns[sorted];
      const sign = falling ? -1 : 1;
      return [...shown].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
      });
    }
    function fill() {
      const most = columns.map(column => column.bar ? Math.max(1e-12, ...rows.map(column.value)) : 0);
      body.replaceChildren(...ordered().slice(0, limit).map(row => node("tr", columns.map((column, i) => {
        const cell = node("td", column.show ? column.show(row) : String(column.value(row)),
                          {class: column.number ? "number" : column.long ? "long" : ""});
        if (column.bar && column.value(row) > 0)
          cell.append(node("span", "", {
            class: "bar", style: `width:${100 * column.value(row) / most[i]}%;--bar:var(${column.bar})`}));
        return cell;
      }))));
      return {shown: Math.min(limit, shown.length), all: shown.length};
    }
    fill();
    return {
      element: made,
      sort,
      filter(keep) { shown = rows.filter(keep); return fill(); },
      more() { limit += 1000; return fill(); },
    };
  }

  const blockColumns = [
    {title: "Value", value: b => b.name, long: true},
    {title: "Bytes", value: b => b.bytes, show: b => bytes(b.bytes), number: true},
    {title: "State", value: b => b.kind},
    {title: "Layer", value: b => b.layer, long: true},
    {title: "Source", value: b => b.source, show: b => line(b.source), long: true},
  ];

  function describe(into, head, more, rows) {
    const parts = [node("div", head, {class: "head"}), node("div", more, {class: "more"})];
    if (rows)
      parts.push(node("table", [
        node("caption", "What is alive then", {class: "skip"}),
        node("thead", node("tr", blockColumns.map(c => node("th", c.title, {scope: "col", class: c.number ? "number" : ""})))),
        node("tbody", rows.map(row => node("tr", blockColumns.map(c => node("td", c.show ? c.show(row) : c.value(row),
          {class: c.number ? "number" : c.long ? "long" : ""})))))]));
    into.replaceChildren(...parts);
  }

  // ---- what all charts share ----

  // A chart with keys, buttons and a size that follows the page. `options` has `data`, `uplot`, `count` (places that
  // the arrow keys go to), `place(i)` (its [x, y]), `find(x, y)` (the place there, or -1) and `show(i)`, which describes
  // the place and returns a short text of it.
  function draw(name, options) {
    const element = by(name + "-plot");
    charts[name]?.destroy();
    element.replaceChildren();
    const state = {at: options.start ?? 0, range: null};
    active[name] = state;
    const axis = values => ({
      stroke: color("--text"), grid: {stroke: color("--rule"), width: 1}, ticks: {stroke: color("--rule")}, ...values});
    let whole = [0, 1];
    const height = () => Math.max(element.classList.contains("tall") ? 380 : 260, Math.min(440, innerHeight * .45));
    const plot = new uPlot({
      width: element.clientWidth, height: height(),
      legend: {show: false},
      padding: [12, options.right ?? 16, 0, 0],
      cursor: {
        drag: {x: true, y: false, setScale: true}, points: {show: false},
        bind: {dblclick: () => () => { zoom(0); return null; }},
      },
      ...options.uplot,
      axes: options.uplot.axes.map(axis),
      hooks: {
        ...options.uplot.hooks,
        // Scales are not known before.
        ready: [u => { whole = [u.scales.x.min, u.scales.x.max]; }],
        setCursor: [u => {
          if (u.cursor.left < 0 || state.quiet)
            return;
          const found = options.find(u.posToVal(u.cursor.left, "x"), u.posToVal(u.cursor.top, "y"));
          if (found >= 0 && found !== state.shown)
            show(found);
        }],
      },
    }, options.data, element);
    charts[name] = plot;

    function show(i) {
      state.at = state.shown = i;
      const short = options.show(i);
      element.setAttribute("aria-valuenow", i + 1);
      element.setAttribute("aria-valuetext", short);
      options.mark?.(i);
      if (options.redraws)
        plot.redraw(false);
    }
    function zoom(factor, shift = 0) {
      let {min, max} = plot.scales.x;
      const middle = options.place(state.at)[0];
      const size = factor === 0 ? whole[1] - whole[0] : Math.min((max - min) / factor, whole[1] - whole[0]);
      const center = factor > 1 ? Math.min(Math.max(middle, min), max) : (min + max) / 2 + shift * (max - min);
      min = Math.max(whole[0], Math.min(center - size / 2, whole[1] - size));
      plot.setScale("x", {min, max: min + size});
      if (options.range)
        plot.setScale("y", {min: options.range[0], max: options.range[1]});
    }
    function go(i) {
      i = Math.max(0, Math.min(options.count - 1, i));
      const [x, y] = options.place(i);
      const {min, max} = plot.scales.x;
      if (x < min || x > max) {
        const left = Math.max(whole[0], Math.min(x - (max - min) / 2, whole[1] - (max - min)));
        plot.setScale("x", {min: left, max: left + max - min});
      }
      show(i);
      state.quiet = true;
      plot.setCursor({left: plot.valToPos(x, "x"), top: plot.valToPos(y, "y")});
      state.quiet = false;
    }
    const actions = {
      ArrowRight: () => go(state.at + 1), ArrowLeft: () => go(state.at - 1),
      ArrowUp: () => go(state.at + 1), ArrowDown: () => go(state.at - 1),
      PageDown: () => go(state.at + 10), PageUp: () => go(state.at - 10),
      Home: () => go(0), End: () => go(options.count - 1),
      "+": () => zoom(2), "=": () => zoom(2), "-": () => zoom(.5), "0": () => zoom(0), Escape: () => zoom(0),
    };
    element.onkeydown = event => {
      if (event.ctrlKey || event.metaKey || event.altKey || !actions[event.key])
        return;
      event.preventDefault();
      actions[event.key]();
    };
    element.onwheel = event => {
      if (!event.ctrlKey)
        return;
      event.preventDefault();
      zoom(event.deltaY < 0 ? 1.3 : 1 / 1.3);
    };
    element.setAttribute("aria-valuemax", options.count);
    const buttons = document.querySelector(`[data-zoom="${name}"]`);
    if (buttons) {
      const made = [["Zoom in", "+", () => zoom(2)], ["Zoom out", "−", () => zoom(.5)], ["To the left", "◀", () => zoom(1, -.5)],
                    ["To the right", "▶", () => zoom(1, .5)], ["Show all", "All", () => zoom(0)]];
      buttons.replaceChildren(...made.map(([label, sign, action]) => {
        const button = node("button", sign, {type: "button", "aria-label": label});
        button.addEventListener("click", action);
        return button;
      }));
    }
    if (options.count > 0)
      show(Math.min(state.at, options.count - 1));
    state.go = go;
    state.size = () => plot.setSize({width: element.clientWidth, height: height()});
  }

  // ---- memory over a step ----

  // Returns when each moment begins, and the end of the last one.
  function edges(walk) {
    if (by("axis").value === "steps")
      return walk.moments.map((_, i) => i).concat(walk.moments.length);
    // The time of the loss is not known; it is given a little, to be seen.
    const loss = walk.moments.findIndex(row => text(row[1]) === "loss");
    const extra = walk.seconds * .004;
    return walk.times.map((time, i) => loss >= 0 && i > loss ? time + extra : time);
  }
  // Returns the last index whose edge is not beyond x.
  function last(sorted, x) {
    let low = 0, high = sorted.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (sorted[middle] <= x)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
  // Returns, for a moment, the one that is shown at its place: where moments take no time, the largest of them.
  function shownAt(walk, at) {
    const best = new Int32Array(walk.moments.length);
    let first = 0;
    for (let i = 0; i < walk.moments.length; ++i) {
      if (at[i + 1] > at[i] || i === walk.moments.length - 1) {
        let largest = i;
        for (let k = first; k < i; ++k)
          if (walk.moments[k][2] > walk.moments[largest][2])
            largest = k;
        best[i] = largest;
        for (let k = first; k < i; ++k)
          best[k] = k;
        first = i + 1;
      }
    }
    return best;
  }

  function drawMemory() {
    const {planned, unplanned, budget} = chart;
    const [at, before] = [edges(planned), edges(unplanned)];
    const [best, bestBefore] = [shownAt(planned, at), shownAt(unplanned, before)];
    const end = Math.max(at.at(-1), before.at(-1));
    const xs = [...new Set([...at, ...before])].sort((a, b) => a - b);
    const level = (walk, sorted, shown, x) => {
      const i = last(sorted, x);
      return i < walk.moments.length ? walk.moments[shown[i]][2] : null;
    };
    const most = Math.max(planned.peak, unplanned.peak, 1);
    const showsBudget = budget > 0 && budget < 1.2 * most;
    document.querySelector(".budget").hidden = !showsBudget;
    const find = x => {
      const i = Math.min(last(at, x), planned.moments.length - 1);
      return best[i];
    };
    const steps = by("axis").value === "steps";
    draw("memory", {
      count: planned.moments.length,
      start: planned.moments.reduce((best, row, i, all) => row[2] > all[best][2] ? i : best, 0),
      place: i => [(at[i] + at[i + 1]) / 2, planned.moments[i][2]],
      find,
      data: [xs, xs.map(x => level(planned, at, best, x)), xs.map(x => level(unplanned, before, bestBefore, x)),
             xs.map(() => showsBudget ? budget : null)],
      uplot: {
        scales: {x: {time: false, range: (u, min, max) => [min, max]}, y: {range: () => [0, most * 1.06]}},
        axes: [{values: (u, splits) => splits.map(v => steps ? (Number.isInteger(v) ? v : "") : seconds(v)), space: 70},
               {values: (u, splits) => splits.map(axisBytes), incrs: INCREMENTS, size: 78}],
        series: [{},
          {label: "planned", stroke: color("--text"), width: 1, paths: uPlot.paths.stepped({align: 1}), points: {show: false}},
          {label: "before", stroke: color("--before"), dash: [5, 4], width: 1.5, paths: uPlot.paths.stepped({align: 1}),
           points: {show: false}},
          {label: "budget", stroke: color("--budget"), dash: [8, 4], width: 1.5, points: {show: false}}],
        hooks: {drawClear: [u => {
          const {ctx} = u;
          ctx.save();
          ctx.beginPath();
          ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
          ctx.clip();
          const bottom = u.valToPos(0, "y", true);
          const colors = Object.fromEntries(Object.keys(STATES).map(kind => [kind, color(COLOR[kind])]));
          planned.moments.forEach((row, i) => {
            const left = u.valToPos(at[i], "x", true), right = u.valToPos(at[i + 1], "x", true);
            if (right < u.bbox.left || left > u.bbox.left + u.bbox.width || at[i] === at[i + 1])
              return;
            const top = u.valToPos(planned.moments[best[i]][2], "y", true);
            ctx.fillStyle = colors[text(row[1])];
            ctx.fillRect(left, top, Math.max(right - left, 1) + .5, bottom - top);
          });
          ctx.restore();
        }]},
      },
      show: i => {
        const now = moment(planned.moments[i]);
        const where = [now.layer && "of " + now.layer, now.source && "(" + line(now.source) + ")"].filter(Boolean).join(" ");
        const other = level(unplanned, before, bestBefore, (at[i] + at[i + 1]) / 2);
        const head = `${now.name} ${where}: ${bytes(now.bytes)}`;
        const alive = planned.blocks.map(block).filter(b => b.begin <= i && i < b.end).sort((a, b) => b.bytes - a.bytes);
        describe(by("memory-detail"), head,
          `Operator ${i + 1} of ${planned.moments.length}, ${STATES[now.kind] === undefined ? now.kind : kindOf(now.kind)}` +
          (other === null ? "" : `; ${bytes(other)} at that ${steps ? "place" : "time"} with nothing recomputed`) +
          `. The largest of ${alive.length} blocks that are alive:`, alive.slice(0, 8));
        return `${head}, ${kindOf(now.kind)}, operator ${i + 1} of ${planned.moments.length}`;
      },
    });
    by("to-peak").onclick = () => active.memory.go(
      planned.moments.reduce((best, row, i, all) => row[2] > all[best][2] ? i : best, 0));
  }
  const kindOf = kind => ({forward: "forward", recomputed: "computed again", backward: "backward", loss: "loss"})[kind];

  // ---- addresses over time ----

  function drawAddresses() {
    const isArena = by("places").value === "arena";
    const source = isArena ? chart.arena : chart.planned;
    const end = isArena ? chart.arena.events : chart.planned.moments.length;
    const size = Math.max(source.size, 1);
    const blocks = source.blocks.map(block).filter(b => b.end > b.begin).sort((a, b) => a.begin - b.begin || a.offset - b.offset);
    by("addresses-note").textContent = isArena
      ? "Where the steps of this process put what their operators allocate: the arena, as it was recorded and placed. " +
        "What outlives the step, such as gradients of parameters, is not in it. Time counts allocations and releases."
      : "A placement of the predicted blocks, so that none that are alive together overlap; each rectangle is a block from " +
        "the operator that makes it to the last one that reads it. Time counts operators.";
    const kinds = [...new Set(blocks.map(b => b.kind))];
    by("addresses-legend").replaceChildren(...kinds.map(kind => node("li", [
      node("span", "", {class: "key", style: `--key: var(${COLOR[kind]})`}), STATES[kind]])));
    let marked = -1;
    draw("addresses", {
      count: blocks.length,
      start: blocks.reduce((best, b, i) => b.bytes > blocks[best].bytes ? i : best, 0),
      place: i => [(blocks[i].begin + blocks[i].end) / 2, blocks[i].offset + blocks[i].bytes / 2],
      find: (x, y) => blocks.findIndex(b => b.begin <= x && x < b.end && b.offset <= y && y < b.offset + b.bytes),
      mark: i => { marked = i; },
      redraws: true,
      range: [0, size],
      data: [[0, end], [0, 0]],
      uplot: {
        cursor: {drag: {x: true, y: true, uni: 40, setScale: true}, points: {show: false}},
        scales: {x: {time: false, range: (u, min, max) => [min, max]}, y: {range: (u, min, max) =>
          max > min && active.addresses.ready ? [min, max] : [0, size]}},
        axes: [{values: (u, splits) => splits.map(v => Number.isInteger(v) ? v : ""), space: 60},
               {values: (u, splits) => splits.map(axisBytes), incrs: INCREMENTS, size: 78}],
        series: [{}, {show: true, stroke: "transparent", points: {show: false}}],
        hooks: {draw: [u => {
          const {ctx} = u;
          const colors = Object.fromEntries(kinds.map(kind => [kind, color(COLOR[kind])]));
          const edge = color("--panel"), ink = color("--text"), mark = color("--mark");
          ctx.save();
          ctx.beginPath();
          ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
          ctx.clip();
          ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
          ctx.textBaseline = "middle";
          const rectangle = b => {
            const left = u.valToPos(b.begin, "x", true), top = u.valToPos(b.offset + b.bytes, "y", true);
            return [left, top, Math.max(1, u.valToPos(b.end, "x", true) - left), Math.max(1, u.valToPos(b.offset, "y", true) - top)];
          };
          for (const b of blocks) {
            const [left, top, width, height] = rectangle(b);
            if (left > u.bbox.left + u.bbox.width || left + width < u.bbox.left)
              continue;
            ctx.fillStyle = colors[b.kind];
            ctx.fillRect(left, top, width, height);
            if (width > 4 && height > 4) {
              ctx.strokeStyle = edge;
              ctx.lineWidth = 1;
              ctx.strokeRect(left + .5, top + .5, width - 1, height - 1);
            }
          }
          if (marked >= 0 && marked < blocks.length) {
            const [left, top, width, height] = rectangle(blocks[marked]);
            ctx.strokeStyle = mark;
            ctx.lineWidth = 3 * devicePixelRatio;
            ctx.strokeRect(left, top, width, height);
          }
          ctx.restore();
        }]},
      },
      show: i => {
        const b = blocks[i];
        const head = `${b.name}: ${bytes(b.bytes)}, ${STATES[b.kind]}`;
        const where = [b.layer && "layer " + b.layer, b.source && line(b.source)].filter(Boolean).join(", ");
        describe(by("addresses-detail"), head,
          `${where ? where + "; " : ""}address ${bytes(b.offset)} to ${bytes(b.offset + b.bytes)}, from ${b.begin + 1} to ${b.end} of ${end}`);
        return `${head}${where ? ", " + where : ""}`;
      },
    });
    active.addresses.ready = true;
  }

  // ---- trade-off ----

  function drawTradeoff() {
    const points = [...chart.tradeoff].sort((a, b) => a[0] - b[0]);
    by("tradeoff").hidden = points.length === 0;
    if (points.length === 0)
      return;
    const base = chart.unplanned.seconds;
    const factor = time => base > 0 ? time / base : 1;
    const own = [chart.planned.peak, factor(chart.planned.seconds)];
    const xs = points.map(point => point[0]), ys = points.map(point => factor(point[1]));
    const [low, high] = [Math.min(1, own[1], ...ys), Math.max(own[1], ...ys)];
    const slack = Math.max((high - low) * .08, .01);
    const nearest = x => xs.reduce((best, value, i) => Math.abs(value - x) < Math.abs(xs[best] - x) ? i : best, 0);
    draw("tradeoff", {
      count: points.length,
      start: nearest(own[0]),
      right: 36,
      place: i => [xs[i], ys[i]],
      find: nearest,
      data: [xs, ys],
      uplot: {
        scales: {x: {time: false, range: (u, min, max) => {
          const more = Math.max((max - min) * .04, 1);
          return [Math.min(min, own[0]) - more, Math.max(max, own[0]) + more];
        }}, y: {range: () => [low - slack, high + slack]}},
        axes: [{values: (u, splits) => splits.map(axisBytes), incrs: INCREMENTS, space: 80},
               {values: (u, splits) => splits.map(v => +v.toFixed(4) + " ×"), size: 70}],
        series: [{}, {label: "time", stroke: color("--kept"), width: 2, paths: uPlot.paths.stepped({align: 1}),
                      points: {show: true, size: 5, fill: color("--kept")}}],
        hooks: {draw: [u => {
          const {ctx} = u;
          const [x, y] = [u.valToPos(own[0], "x", true), u.valToPos(own[1], "y", true)];
          ctx.save();
          if (chart.budget > 0) {
            const at = u.valToPos(chart.budget, "x", true);
            if (at >= u.bbox.left && at <= u.bbox.left + u.bbox.width) {
              ctx.strokeStyle = color("--budget");
              ctx.setLineDash([8, 4]);
              ctx.lineWidth = 1.5 * devicePixelRatio;
              ctx.beginPath();
              ctx.moveTo(at, u.bbox.top);
              ctx.lineTo(at, u.bbox.top + u.bbox.height);
              ctx.stroke();
              ctx.setLineDash([]);
            }
          }
          ctx.strokeStyle = color("--recomputed");
          ctx.lineWidth = 3 * devicePixelRatio;
          ctx.beginPath();
          ctx.arc(x, y, 8 * devicePixelRatio, 0, 7);
          ctx.stroke();
          ctx.restore();
        }]},
      },
      show: i => {
        const head = `Peak ${bytes(xs[i])}: ${ys[i].toFixed(3)} of the time with nothing recomputed`;
        describe(by("tradeoff-detail"), head,
          `${bytes(points[i][2])} kept for the backward. The plan that runs: peak ${bytes(own[0])}, ${own[1].toFixed(3)} of the time.`);
        return `${head}, plan ${i + 1} of ${points.length}`;
      },
    });
  }

  // ---- the rest of the page ----

  function fillSummary() {
    const {planned, unplanned, budget} = chart;
    by("title").textContent = "Memory of a training step: " + chart.title;
    const cards = [["Predicted peak", bytes(chart.predictedPeak)]];
    if (chart.measuredPeak !== null && chart.measuredPeak !== undefined)
      cards.push(["Measured peak", bytes(chart.measuredPeak)]);
    cards.push(["With nothing recomputed", bytes(unplanned.peak)]);
    if (budget > 0)
      cards.push(["Budget", bytes(budget)]);
    cards.push(["Kept for the backward", bytes(planned.saved)]);
    if (chart.hasTimes)
      cards.push(["Time of a step", `${seconds(planned.seconds)} (×\u00a0${(planned.seconds / unplanned.seconds).toFixed(3)})`]);
    if (data.resident[1] > 0)
      cards.push(["Process, resident at most", bytes(data.resident[1])]);
    by("cards").replaceChildren(...cards.map(([name, value]) => node("div", [node("dt", name), node("dd", value)])));
    by("report").replaceChildren(...data.parts.flatMap(([title, lines]) => [
      node("h3", title),
      node("dl", lines.filter(each => each[1]).flatMap(([name, value]) => [node("dt", name), node("dd", value)]))]));
  }

  function fillTables() {
    const layers = chart.layers.map(([name, kept, again, forward, backward, repeated]) => ({name, kept, again, forward, backward, repeated}));
    const times = [["Forward", "forward"], ["Backward", "backward"], ["Computed again", "repeated"]];
    by("layers-table").replaceChildren(table(layers, [
      {title: "Layer", value: row => row.name, long: true},
      {title: "Kept", value: row => row.kept, show: row => bytes(row.kept), number: true, bar: "--kept"},
      {title: "Recomputed", value: row => row.again, show: row => bytes(row.again), number: true, bar: "--recomputed"},
      ...(chart.hasTimes ? times : []).map(([title, key]) => (
        {title, value: row => row[key], show: row => row[key] > 0 ? seconds(row[key]) : "0", number: true, bar: "--backward"})),
    ], "What layers keep and recompute").element);

    const blocks = chart.planned.blocks.map(block);
    const values = table(blocks, [
      ...blockColumns.slice(0, 2), ...blockColumns.slice(2),
      {title: "From", value: b => b.begin + 1, number: true}, {title: "To", value: b => b.end, number: true},
    ], "All blocks of memory of the step");
    values.sort(1);
    by("values-table").replaceChildren(values.element);
    by("state").replaceChildren(node("option", "all", {value: ""}),
      ...[...new Set(blocks.map(b => b.kind))].map(kind => node("option", kind === STATES[kind] ? kind : `${kind}: ${STATES[kind]}`, {value: kind})));
    const say = ({shown, all}) => {
      by("count").textContent = shown < all ? `${shown} of ${all} blocks` : `${all} blocks`;
      by("more").hidden = shown >= all;
    };
    const filter = () => {
      const words = by("find").value.toLowerCase();
      const kind = by("state").value;
      say(values.filter(b => (!kind || b.kind === kind) &&
                             [b.name, b.layer, b.source].some(each => each.toLowerCase().includes(words))));
    };
    by("find").oninput = by("state").onchange = filter;
    by("more").onclick = () => say(values.more());
    filter();
  }

  function drawAll() {
    drawMemory();
    drawAddresses();
    drawTradeoff();
  }

  function choose(index) {
    chart = data.charts[index];
    by("axis").value = chart.hasTimes ? "time" : "steps";
    by("axis").disabled = !chart.hasTimes;
    const places = [["predicted", "predicted"]];
    if (chart.arena.blocks.length > 0)
      places.unshift(["arena", "the arena of the steps"]);
    by("places").replaceChildren(...places.map(([value, name]) => node("option", name, {value})));
    by("places-choice").hidden = places.length === 1;
    by("find").value = "";
    fillSummary();
    fillTables();
    drawAll();
  }

  by("chart").replaceChildren(...data.charts.map((each, i) => node("option", each.title, {value: i})));
  by("chart-choice").hidden = data.charts.length === 1;
  by("chart").onchange = () => choose(+by("chart").value);
  by("axis").onchange = drawMemory;
  by("places").onchange = drawAddresses;
  by("theme").onchange = () => {
    if (by("theme").value)
      document.documentElement.dataset.theme = by("theme").value;
    else
      delete document.documentElement.dataset.theme;
    drawAll();
  };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  choose(0);
  new ResizeObserver(() => Object.values(active).forEach(each => each.size?.())).observe(by("main"));
  document.documentElement.dataset.ready = "yes";
})();
