// charts — a chart of the page's data as a figure, drawn by Chart.js: legend, hover, keys. What is drawn is said in record.h: lines,
// areas, bars, spans. Without the library a chart is its numbers.
'use strict';

const charts = (() => {
  const shapes = ['circle', 'rectRot', 'triangle', 'rect'];
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const {in_lines} = marks;
  const colour = index => css('--c' + (index % 8 + 1));
  const shape = index => shapes[(index + Math.floor(index / 8)) % shapes.length];  // a colour that comes again has another
  const is_bound = (data, s) => s.joined && !s.continues && data.series.some(o => !o.joined);  // a line among dots: what they cannot pass
  const alpha = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, '0');
  const wide = data => data.kind === 'areas' || data.kind === 'spans' || (data.kind === 'bars' && (data.ticks.length > 8 || data.ticks.some(t => t.length > 22)));
  const logarithmic = (data, axis) => data.kind === 'lines' && (data.log || (axis === 'x' && data.log_x));

  // A name keeps the colour that it was first given on this page, where that is free in its chart; a new one takes the first that is.
  // What goes on with a series has its colour.
  const known = new Map(), settled = new WeakMap();
  function colours_of(data) {
    if (settled.has(data)) return settled.get(data);
    const plain = name => name.split(' · ~ ')[0];  // without the exponent
    const hues = new Map(), taken = new Set(), own = data.series.filter(s => !s.continues && !is_bound(data, s));
    const give = (s, hue) => { taken.add(hue), hues.set(s.name, hue), known.has(plain(s.name)) || known.set(plain(s.name), hue); };
    for (const s of own) if (known.has(plain(s.name)) && !taken.has(known.get(plain(s.name)))) give(s, known.get(plain(s.name)));
    for (const s of own) if (!hues.has(s.name)) give(s, [...Array(taken.size + 1).keys()].find(hue => !taken.has(hue)));
    for (const s of data.series) if (!hues.has(s.name)) hues.set(s.name, hues.get(s.continues) ?? 0);
    settled.set(data, hues);
    return hues;
  }

  function bounds(data) {
    const xs = data.series.flatMap(s => s.x), ys = data.series.flatMap(s => s.y);
    for (const m of data.marks) (m.upright ? xs : ys).push(m.at);
    const range = all => all.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
    let [x0, x1] = range(xs), [y0, y1] = range(ys);
    const room = ([low, high]) => { const by = Math.max((high / low) ** 0.05, 1.05); return [low / by, high * by]; };
    const above = all => all.filter(v => v > 0);
    return {x: logarithmic(data, 'x') ? room(range(above(xs))) : x0 === x1 ? [x0 - 1, x1 + 1] : [x0, x1],
            y: logarithmic(data, 'y') ? room(range(above(ys))) : [Math.min(0, y0), y1 > 0 ? y1 * 1.05 : 1]};
  }

  // Ticks of a logarithmic axis: powers of two for bytes and lengths, else 1, 2, 5, as many as are good to read.
  function log_ticks(min, max, unit, binary, most) {
    const found = [];
    if (unit === 'bytes' || binary) {
      const low = Math.ceil(Math.log2(min) - 1e-9), high = Math.floor(Math.log2(max) + 1e-9), step = Math.max(1, Math.ceil((high - low) / most));
      for (let e = Math.ceil(low / step) * step; e <= high; e += step) found.push(2 ** e);
      return found;
    }
    const decades = Math.log10(max / min), heads = decades > 3.5 ? [1] : decades > 1.6 ? [1, 3] : [1, 2, 3, 5, 7];
    const step = Math.max(1, Math.ceil(decades / 7));
    for (let e = Math.floor(Math.log10(min)); e <= Math.log10(max); e += step)
      for (const h of heads) if (h * 10 ** e >= min && h * 10 ** e <= max) found.push(Number((h * 10 ** e).toPrecision(2)));
    return found;
  }

  function byte_ticks(min, max) {  // a power of two apart
    const step = 2 ** Math.ceil(Math.log2(Math.max(max - min, 1) / 6)), found = [];
    for (let v = Math.ceil(min / step) * step; v <= max; v += step) found.push({value: v});
    return found;
  }

  function scale(data, axis, name, unit, [min, max]) {
    const common = {min, max, title: {display: name !== '', text: name, color: css('--muted'), font: {size: 12}},
                    grid: {color: css('--line'), borderColor: css('--line'), tickLength: 4},
                    ticks: {color: css('--muted'), maxRotation: 0, callback: v => words.tick(v, unit), autoSkipPadding: 12, includeBounds: false}};
    if (!logarithmic(data, axis)) return {...common, type: 'linear', afterBuildTicks: s => { if (unit === 'bytes') s.ticks = byte_ticks(s.min, s.max); }};
    const binary = axis === 'x' && data.series.some(s => s.x.length > 1) &&
      data.series.every(s => s.continues || s.x.every(x => Number.isInteger(Math.log2(x))));
    return {...common, type: 'logarithmic',
            afterBuildTicks: s => { s.ticks = log_ticks(s.min, s.max, unit, binary, axis === 'x' ? Math.max(3, Math.floor((s.maxWidth || 490) / (s.max < 1e6 ? 64 : 78))) : 7).map(value => ({value})); }};
  }

  function lane_scale() {
    return {type: 'category', ticks: {color: css('--ink'), autoSkip: false}, grid: {display: false, borderColor: css('--line')}};
  }

  function sets_of(data, hues) {
    const hover = (s, i) => s.names.length ? data.words[s.names[i]] : '';
    return data.series.map((s, n) => {
      const bound = is_bound(data, s), hue = bound ? css(s.names.length ? '--ink' : '--muted') : colour(hues.get(s.name)), base = {label: s.name, borderColor: hue, continues: s.continues};
      switch (data.kind) {
        case 'areas':
          return {...base, data: s.x.map((x, i) => ({x, y: s.y[i], name: hover(s, i)})), backgroundColor: alpha(hue, 0.72), borderWidth: 0,
                  fill: n === 0 ? 'origin' : '-1', pointRadius: 0, pointHitRadius: 0, stepped: true};
        case 'bars':
          return {...base, data: data.ticks.map((_, t) => { const i = s.x.indexOf(t); return i < 0 ? null : s.y[i]; }), maxBarThickness: 26,
                  hover_names: data.ticks.map((_, t) => { const i = s.x.indexOf(t); return i < 0 ? '' : hover(s, i); }),
                  spread: data.ticks.map((_, t) => s.spread?.[s.x.indexOf(t)] ?? 0),
                  backgroundColor: alpha(hue, 0.85), borderWidth: 0, borderRadius: 2};
        case 'spans':
          return {...base, data: s.x.map((x, i) => ({x: [x, s.y[i]], y: s.name, name: hover(s, i)})), backgroundColor: hue,
                  borderWidth: 0, grouped: false, minBarLength: 1, barPercentage: 0.9, categoryPercentage: 0.9};
        default:
          // Dots are many and lie on one another; the line that bounds them is over them, with its points where they have names.
          return {...base, data: s.x.map((x, i) => ({x, y: s.y[i], name: hover(s, i)})), showLine: s.joined, clip: 6,
                  backgroundColor: s.joined ? hue : alpha(hue, 0.4), borderWidth: s.joined ? 2 : 0,
                  borderDash: s.continues ? [3, 4] : [], pointStyle: bound ? 'circle' : shape(hues.get(s.name)),
                  pointRadius: s.continues ? 0 : bound ? (s.names.length ? 4 : 0) : s.joined ? (s.x.length > 60 ? 0 : 3.5) : 4.5, pointHoverRadius: 6,
                  pointHitRadius: 4};
      }
    });
  }

  function said(data, item) {  // one line of a tooltip
    const raw = item.raw, name = item.dataset.label;
    if (data.kind === 'spans') return `${raw.name || name}: ${words.full(raw.x[1] - raw.x[0], data.x_unit)}`;
    if (data.kind === 'bars') {
      const more = item.dataset.hover_names[item.dataIndex];
      const spread = item.dataset.spread[item.dataIndex];
      return `${data.series.length > 1 ? name + ': ' : ''}${words.full(raw, data.unit)}${spread ? ' ± ' + words.full(spread, data.unit) : ''}${more ? ' · ' + more : ''}`;
    }
    return `${name}: ${words.full(raw.y, data.unit)}${raw.name && data.kind !== 'areas' ? ' · ' + raw.name : ''}`;
  }
  const tick_of = (data, at) => data.ticks.slice(0, at + 1).findLast(t => t !== '') ?? '';  // of several bars the first has their name
  function heading(data, items) {
    const first = items[0];
    if (data.kind === 'bars') return tick_of(data, first.dataIndex);
    if (data.kind === 'spans') return `${first.dataset.label}, at ${words.full(first.raw.x[0], data.x_unit)}`;
    return `${data.x_name} ${words.full(first.raw.x, data.x_unit)}`;
  }
  function footing(data, items) {  // of areas: whose coming or going this moment is, and the sum
    if (data.kind !== 'areas') return [];
    const names = items.map(i => i.raw.name).filter(n => n), sum = items.reduce((a, i) => a + i.raw.y, 0);
    return [`all: ${words.full(sum, data.unit)}`, ...names];
  }

  function config(data) {
    const hues = colours_of(data), range = bounds(data), lying = data.kind === 'bars' || data.kind === 'spans';
    const x_scale = scale(data, 'x', data.x_name, data.x_unit, range.x), y_scale = scale(data, 'y', data.y_name, data.unit, range.y);
    if (data.kind === 'areas' || (data.kind === 'bars' && data.series.length > 1)) y_scale.stacked = true, delete y_scale.max;
    if (data.kind === 'bars') y_scale.min = 0, y_scale.max = data.unit === 'share' && range.y[1] <= 1.06 ? 1 : undefined;
    if (data.kind === 'bars') y_scale.suggestedMax = Math.max(...data.series.flatMap(s => (s.spread ?? []).map((by, i) => 1.03 * (s.y[i] + by))), 0);
    const scales = data.kind === 'bars' ? {x: {...y_scale}, y: {...lane_scale(), stacked: data.series.length > 1}}
      : data.kind === 'spans' ? {x: x_scale, y: lane_scale()} : {x: x_scale, y: y_scale};
    const sums = data.series.reduce((all, s) => s.y.map((y, i) => y + (all[i] ?? 0)), []);
    if (data.kind === 'areas') range.y[1] = 1.06 * Math.max(...sums, ...data.marks.filter(m => !m.upright).map(m => m.at)), y_scale.max = range.y[1];
    const across = data.kind === 'bars' ? data.marks.map(m => ({...m, upright: !m.upright})) : data.marks;
    const labels = data.kind === 'bars' ? data.ticks.map(in_lines) : data.kind === 'spans' ? data.series.map(s => s.name) : undefined;
    return {
      type: lying ? 'bar' : 'line',
      data: {labels, datasets: sets_of(data, hues)},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, parsing: data.kind === 'lines' || data.kind === 'areas' ? false : undefined,
        normalized: true, indexAxis: lying ? 'y' : 'x', scales, layout: {padding: {top: marks.room(across), right: 8}},
        interaction: lying ? {mode: data.kind === 'bars' ? 'index' : 'nearest', axis: 'y', intersect: data.kind === 'spans'}
          : {mode: data.kind === 'lines' && !data.series.every(s => s.joined) ? 'nearest' : 'x_nearest', axis: 'xy', intersect: false},
        plugins: {
          legend: {display: false}, mark_lines: {marks: across},
          tooltip: {
            filter: item => data.kind !== 'areas' || item.raw.y > 0 || item.raw.name !== '', itemSort: data.kind === 'areas' ? (a, b) => b.datasetIndex - a.datasetIndex : undefined,
            backgroundColor: css('--tip'), titleColor: css('--tip-ink'), bodyColor: css('--tip-ink'), footerColor: css('--tip-ink'),
            footerFont: {weight: 'normal'}, padding: 10, boxPadding: 4, usePointStyle: data.kind === 'lines', caretSize: 0, cornerRadius: 6,
            callbacks: {title: items => items.length ? heading(data, items) : '', label: item => said(data, item),
                        footer: items => items.length ? footing(data, items) : []},
          },
        },
      },
      plugins: [marks.lines, marks.spreads],
    };
  }

  // Of every series the point nearest in x: what a reader means who follows a line.
  function nearest_in_x(chart, event, _, use_final) {
    const at = Chart.helpers ? Chart.helpers.getRelativePosition(event, chart) : event, found = [];
    let best = Infinity;
    for (const meta of chart.getSortedVisibleDatasetMetas()) {
      if (chart.data.datasets[meta.index].continues) continue;
      let near = -1, distance = Infinity;
      meta.data.forEach((element, index) => {
        const d = Math.abs(element.getProps(['x'], use_final).x - at.x);
        if (d < distance) distance = d, near = index;
      });
      if (near >= 0) found.push({element: meta.data[near], datasetIndex: meta.index, index: near, distance}), best = Math.min(best, distance);
    }
    return found.filter(f => f.distance <= best + 0.5);
  }
  if (typeof Chart !== 'undefined') {
    Chart.Interaction ??= {modes: {}};
    Chart.Interaction.modes.x_nearest = nearest_in_x;
  }

  function keys(figure, chart, data) {  // arrows walk along the points, and what is there is said
    let at = -1;
    const last = () => Math.max(...chart.data.datasets.map(s => s.data.length)) - 1;
    return step => {
      at = Math.min(Math.max(at + step, 0), last());
      const active = chart.data.datasets.flatMap((s, datasetIndex) =>
        s.continues || at >= s.data.length || s.data[at] === null || !chart.isDatasetVisible(datasetIndex) ? [] : [{datasetIndex, index: at}]);
      const shown = data.kind === 'spans' ? active.slice(0, 1) : active;
      if (shown.length === 0) return;
      const {x, y} = chart.getDatasetMeta(shown[0].datasetIndex).data[at].tooltipPosition();
      chart.setActiveElements(shown);
      chart.tooltip.setActiveElements(shown, {x, y});
      chart.update('none');
      const tip = chart.tooltip;
      document.getElementById('said').textContent = [...(tip.title ?? []), ...(tip.body ?? []).flatMap(b => b.lines)].join(', ');
    };
  }

  function legend(data, chart, redraw) {
    const hues = colours_of(data), box = element('div', {class: 'legend'});
    if (data.kind === 'spans') return box;
    data.series.forEach((s, index) => {
      if (s.continues) return;
      const swatch = element('span', {class: 'swatch ' + (is_bound(data, s) ? (s.names.length ? 'bound over' : 'bound') : 'c' + (hues.get(s.name) % 8 + 1) + (data.kind === 'lines' ? ' ' + shape(hues.get(s.name)) : '')), 'aria-hidden': 'true'});
      box.append(element('button', {type: 'button', 'aria-pressed': 'true', title: 'Show or hide', click: e => {
        const on = e.currentTarget.getAttribute('aria-pressed') !== 'true';
        e.currentTarget.setAttribute('aria-pressed', String(on));
        data.series.forEach((other, i) => { if (i === index || other.continues === s.name) chart().setDatasetVisibility(i, on); });
        redraw();
      }}, swatch, s.name));
    });
    return data.series.filter(s => !s.continues).length > 1 || data.kind === 'lines' ? box : element('div');
  }

  // The numbers behind a chart, for those who would rather read.
  function numbers(data) {
    const columns = data.kind === 'spans' ? ['row', 'what', 'start', 'end'] : ['series', data.x_name, data.y_name];
    const units = data.kind === 'spans' ? ['none', 'none', data.x_unit, data.x_unit] : ['none', data.x_unit, data.unit];
    const values = columns.map(() => []);
    for (const s of data.series)
      s.x.forEach((x, i) => {
        const name = s.names.length ? data.words[s.names[i]] : '';
        const row = data.kind === 'spans' ? [s.name, name, x, s.y[i]] : [s.name, data.kind === 'bars' ? tick_of(data, x) : x, s.y[i]];
        row.forEach((v, c) => values[c].push(v));
      });
    return tables.build({name: 'numbers', title: '', rows: values[0].length, left_out: 0,
                         columns: columns.map((name, c) => ({name: name || 'value', unit: units[c], show: 'always', values: values[c]}))});
  }

  const tall_enough = data => Math.max(110, 54 + data.ticks.reduce((all, t) => all + Math.max(t === '' ? 24 : 30, 8 + 15 * in_lines(t).length), 0));
  function height(data) {
    const sheet = 700, paper = document.documentElement.classList.contains('paper');  // of A4, with its heading and legend
    if (data.kind === 'bars' && paper) return Math.min(sheet, tall_enough(data));
    if (data.kind === 'bars') return tall_enough(data);
    if (data.kind === 'spans') return Math.max(140, 60 + marks.room(data.marks) + 30 * data.series.length);
    return null;
  }

  // What is chosen in one frame is chosen in all that have it: "bf16 · dim 64", and in a longer choice as its end.
  const choosers = [];
  const has = (long, short) => long === short || long.endsWith(' · ' + short);
  function choose(word, by) {
    for (const c of choosers) if (c !== by && !(has(word, c.now()) || has(c.now(), word))) c.pick(w => has(w, word) || has(word, w));
  }
  // At first what the frames before it have chosen, else the one that shows most.
  const size_of = f => f.series.reduce((all, s) => all + s.x.length, 0);
  const first_of = frames => frames.find(f => choosers.some(c => has(f.choice, c.now()) || has(c.now(), f.choice)))
    ?? frames.reduce((best, f) => size_of(f) >= size_of(best) ? f : best);

  // One frame for charts of one title: the reader chooses among them.
  function build(frames) {
    let data = first_of(frames), chart = null;
    [data, ...frames].forEach(colours_of);
    const figure = element('figure', {class: wide(data) ? 'chart wide' : 'chart', 'data-kind': data.kind});
    const canvas = element('canvas', {tabindex: '0', role: 'img'}), plot = element('div', {class: 'plot'}, canvas);
    const legend_box = element('div'), tools = element('div', {class: 'tools'});
    const choice = frames.length < 2 ? null
      : element('select', {'aria-label': 'Which: ' + data.title, change: e => { show(frames[e.target.selectedIndex]); choose(data.choice, chooser); }},
                ...frames.map(f => element('option', {}, f.choice)));
    const chosen = element('span', {class: 'chosen'}, data.choice);  // on paper
    const show = frame => {
      data = frame, choice.selectedIndex = frames.indexOf(frame), chosen.textContent = frame.choice;
      if (chart) draw();
    };
    const chooser = {now: () => data.choice, pick: fits => { const f = frames.find(x => fits(x.choice)); if (f) show(f); }};
    if (choice) choice.selectedIndex = frames.indexOf(data), choosers.push(chooser);
    const details = element('details', {class: 'numbers', toggle: () => { if (details.open) details.lastChild.replaceWith(numbers(data)); }},
                            element('summary', {}, 'The numbers'), element('div'));
    figure.append(element('figcaption', {}, element('span', {}, data.title + (frames.length < 2 && data.choice ? ' · ' + data.choice : '')), choice, choice && chosen), legend_box);
    if (typeof Chart === 'undefined') {
      details.open = true;
      return figure.append(element('p', {class: 'note'}, 'This program was built without a chart library; these are the numbers.'), details), {figure, wide: wide(data), draw: () => {}};
    }
    figure.append(plot, tools, details);

    function draw() {
      chart?.destroy();
      Chart.defaults.font.family = css('--font');
      const tall = height(data);
      if (tall) plot.style.height = tall + 'px';
      chart = new Chart(canvas, config(data));
      legend_box.replaceChildren(legend(data, () => chart, () => chart.update('none')));
      canvas.setAttribute('aria-label', `${data.title}. ${data.series.length} series. Arrow keys read the points, plus and minus zoom.`);
      figure.chart = chart;
      zoom.attach(plot, canvas, chart, data, tools, keys(figure, chart, data));
      if (details.open) details.lastChild.replaceWith(numbers(data));
      tools.querySelector('.left-out')?.remove();
      if (data.left_out) tools.append(element('span', {class: 'note left-out'}, `${words.cell(data.left_out)} of its points are left out here.`));
    }
    return {figure, wide: wide(data), draw};
  }

  return {build};
})();
