// zoom — a chart's x axis narrowed and widened: drag over a stretch, Ctrl with the wheel, + − 0 and arrows with Shift on the keyboard,
// buttons. A double click gives the whole back.
'use strict';

const zoom = (() => {
  const attached = new WeakMap();  // plot → what is to be undone when another chart takes its place

  function attach(plot, canvas, chart, data, tools, walk) {
    attached.get(plot)?.abort();
    const stop = new AbortController(), on = (target, name, f, more = {}) => target.addEventListener(name, f, {signal: stop.signal, ...more});
    attached.set(plot, stop);
    tools.replaceChildren();
    const axis = () => chart.options.scales.x;  // asked anew each time: an update resolves the options again
    const whole = [axis().min, axis().max], log = axis().type === 'logarithmic';
    on(canvas, 'keydown', e => {
      const step = {ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity}[e.key];
      if (step !== undefined && !e.shiftKey) walk(step), e.preventDefault();
    });
    if (data.kind === 'bars') return;

    const to = v => log ? Math.log(v) : v, from = v => log ? Math.exp(v) : v;
    const reset = element('button', {type: 'button', click: () => show(...whole)}, 'Whole range');
    const buttons = [element('button', {type: 'button', 'aria-label': 'Zoom in', click: () => by(0.5)}, '+'),
                     element('button', {type: 'button', 'aria-label': 'Zoom out', click: () => by(2)}, '−'), reset];
    reset.hidden = true;
    tools.append(...buttons);

    function show(min, max) {  // within what there is, and not closer than numbers can tell apart
      const [low, high] = whole.map(to), least = (high - low) * 1e-5;
      let a = Math.max(to(min), low), b = Math.min(to(max), high);
      if (b - a < least) b = a + least;
      axis().min = from(a), axis().max = from(b);
      reset.hidden = a <= low && b >= high;
      chart.update('none');
    }
    function by(factor, at = 0.5) {
      const a = to(axis().min), b = to(axis().max), centre = a + (b - a) * at;
      show(from(centre - (centre - a) * factor), from(centre + (b - centre) * factor));
    }
    function move(share) {
      const [low, high] = whole.map(to), a = to(axis().min), b = to(axis().max);
      const step = Math.min(Math.max(share * (b - a), low - a), high - b);
      show(from(a + step), from(b + step));
    }

    on(canvas, 'keydown', e => {
      if (e.key === '+' || e.key === '=') by(0.5);
      else if (e.key === '-') by(2);
      else if (e.key === '0' || e.key === 'Escape') show(...whole);
      else if (e.shiftKey && e.key === 'ArrowRight') move(0.25);
      else if (e.shiftKey && e.key === 'ArrowLeft') move(-0.25);
      else return;
      e.preventDefault();
    });
    on(canvas, 'wheel', e => {
      const area = chart.chartArea;
      if (e.ctrlKey) by(e.deltaY > 0 ? 1.25 : 0.8, (e.offsetX - area.left) / (area.right - area.left));
      else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) move(e.deltaX / (area.right - area.left));
      else return;
      e.preventDefault();
    }, {passive: false});
    on(canvas, 'dblclick', () => show(...whole));

    let start = null;
    const band = element('div', {class: 'band'});
    const within = x => Math.min(Math.max(x, chart.chartArea.left), chart.chartArea.right);
    on(canvas, 'pointerdown', e => {
      if (e.button !== 0) return;
      start = within(e.offsetX);
      canvas.setPointerCapture(e.pointerId);
    });
    on(canvas, 'pointermove', e => {
      if (start === null) return;
      const now = within(e.offsetX);
      if (Math.abs(now - start) > 4 && !band.isConnected) plot.append(band);
      band.style.left = Math.min(start, now) + 'px';
      band.style.width = Math.abs(now - start) + 'px';
    });
    on(canvas, 'pointerup', e => {
      if (start === null) return;
      const a = start, b = within(e.offsetX), scale = chart.scales.x;
      start = null;
      band.remove();
      if (Math.abs(b - a) > 4) show(scale.getValueForPixel(Math.min(a, b)), scale.getValueForPixel(Math.max(a, b)));
    });
    on(canvas, 'pointercancel', () => { start = null; band.remove(); });
  }

  return {attach};
})();
