// marks — what is drawn over a chart: dashed lines across it with their names, the spread of bars, and names of bars that leave room for them.
'use strict';

const marks = (() => {
  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const line = 15;

  // Names of upright lines stand above the chart, in as many rows as keep them apart.
  const room = all => 6 + line * Math.min(3, all.filter(m => m.upright).length);

  function write(ctx, text, left, base) {
    ctx.save();
    ctx.setLineDash([]);
    ctx.strokeStyle = css('--card');
    ctx.lineWidth = 4;
    ctx.strokeText(text, left, base);
    ctx.fillText(text, left, base);
    ctx.restore();
  }

  const lines = {
    id: 'mark_lines',
    afterDatasetsDraw(chart, _, {marks}) {
      const {ctx, chartArea: area, scales: {x, y}} = chart, written = [];
      ctx.save();
      ctx.font = '12px ' + Chart.defaults.font.family;
      ctx.fillStyle = ctx.strokeStyle = css('--muted');
      ctx.setLineDash([5, 4]);
      for (const m of marks) {
        const at = (m.upright ? x : y).getPixelForValue(m.at), width = ctx.measureText(m.name).width;
        if (m.upright ? at < area.left - 1 || at > area.right + 1 : at < area.top - 1 || at > area.bottom + 1) continue;
        let left = area.left + 6, base = at - area.top < 16 ? at + 13 : at - 5, step = line;
        if (m.upright) left = Math.max(area.left, Math.min(at - width / 2, chart.width - width - 2)), base = area.top - 5, step = -line;
        const meets = () => written.some(w => left < w.right + 8 && left + width + 8 > w.left && Math.abs(base - w.base) < line - 1);
        while (meets() && base + step > 8 && base + step < area.bottom) base += step;
        written.push({name: m.name, left, right: left + width, base});
        ctx.beginPath();
        ctx.moveTo(...(m.upright ? [at, base + 3] : [area.left, at]));
        ctx.lineTo(...(m.upright ? [at, area.bottom] : [area.right, at]));
        ctx.stroke();
      }
      for (const w of written) write(ctx, w.name, w.left, w.base);
      ctx.restore();
    },
  };

  // So much below and above the end of a bar, where it is known.
  const spreads = {
    id: 'spreads',
    afterDatasetsDraw(chart) {
      const {ctx, chartArea: area, scales: {x}} = chart;
      ctx.save();
      ctx.strokeStyle = css('--ink');
      ctx.lineWidth = 1.5;
      chart.data.datasets.forEach((set, index) => (set.spread ?? []).forEach((by, i) => {
        const element = chart.getDatasetMeta(index).data[i];
        if (!by || !element) return;
        const [low, high] = [set.data[i] - by, set.data[i] + by].map(v => Math.max(area.left, Math.min(area.right, x.getPixelForValue(v))));
        ctx.beginPath();
        for (const end of [low, high]) ctx.moveTo(end, element.y - 4), ctx.lineTo(end, element.y + 4);
        ctx.moveTo(low, element.y), ctx.lineTo(high, element.y);
        ctx.stroke();
      }));
      ctx.restore();
    },
  };

  // A long name in two lines at most, broken between words; its middle gives way, both ends tell.
  function in_lines(text) {
    const most = innerWidth < 760 ? 19 : 42;
    if (text.length <= most) return [text];
    const start = text.slice(0, most + 1), at = Math.max(...[' ', ',', '_', '<', ':', '.'].map(c => start.lastIndexOf(c) + 1));
    const first = text.slice(0, at > most / 3 ? at : most), rest = text.slice(first.length).trim();
    if (rest.length <= most) return [first.trim(), rest];
    const end = rest.slice(1 - most), word = end.indexOf(' ') + 1;
    return [first.trim(), '…' + (word > 0 && word < most / 2 ? end.slice(word) : end)];
  }

  return {lines, room, spreads, in_lines};
})();
