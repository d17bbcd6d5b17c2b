// words — how the page writes a value: as the program's printers for people do (src/report/words.cpp).
'use strict';

const words = (() => {
  const none = '–';
  const digits = (x, n) => String(Number(x.toPrecision(n)));

  function number(x) {
    const size = Math.abs(x);
    if (x !== 0 && (size >= 1e6 || size < 1e-4)) return x.toExponential(2);
    return size >= 1e4 ? x.toFixed(0) : digits(x, 4);
  }

  function integer(x) {  // in groups of three from five digits on
    const text = String(x);
    return Math.abs(x) < 1e4 ? text : text.replace(/\B(?=(\d{3})+$)/g, '\u202f');
  }

  function bytes(x) {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];
    let unit = 0;
    while (Math.abs(x) >= 1024 && unit + 1 < units.length) x /= 1024, ++unit;
    return (unit === 0 ? x.toFixed(0) : x.toFixed(Math.abs(x) < 10 ? 2 : Math.abs(x) < 100 ? 1 : 0)) + ' ' + units[unit];
  }

  // As in a table, whose head or neighbour says the unit of a time.
  function cell(value, unit) {
    if (value === null || value === undefined) return none;
    if (typeof value === 'string') return value;
    if (typeof value === 'boolean') return value ? 'yes' : 'no';
    switch (unit) {
      case 'bytes': return bytes(value);
      case 'tflops': return digits(value, 3);
      case 'bytes_per_s':
        return value >= 1e12 ? (value / 1e12).toFixed(2) + ' TB/s' : value >= 1e9 ? (value / 1e9).toFixed(1) + ' GB/s' : digits(value / 1e6, 3) + ' MB/s';
      case 'flops': return value >= 1e12 ? digits(value / 1e12, 4) + ' TFLOP/s' : digits(value / 1e9, 4) + ' GFLOP/s';
      case 'ratio': return value.toFixed(2) + '×';
      case 'share': return (100 * value).toFixed(1) + ' %';
      case 'error': return value.toExponential(1);
      case 'exact': return String(value);
      default: return Number.isInteger(value) && unit !== 'ms' ? integer(value) : number(value);
    }
  }

  // As standing alone.
  function full(value, unit) {
    if (typeof value !== 'number') return cell(value, unit);
    if (unit === 'ms') return value >= 1e3 ? digits(value / 1e3, 4) + ' s' : value < 0.1 ? digits(value * 1e3, 3) + ' µs' : number(value) + ' ms';
    return cell(value, unit) + (unit === 'tflops' ? ' TFLOP/s' : '');
  }

  // Shorter still, at an axis.
  function tick(value, unit) {
    if (unit === 'bytes') return value === 0 ? '0' : bytes(value).replace(/\.0+ /, ' ');
    if (unit === 'share') return digits(100 * value, 3) + ' %';
    if (unit === 'ratio') return digits(value, 3) + '×';
    if (unit === 'error') return value === 0 ? '0' : value.toExponential(0);
    if (unit === 'flops' || unit === 'bytes_per_s') return cell(value, unit);
    return Number.isInteger(value) && Math.abs(value) < 1e9 ? integer(value) : number(value);
  }

  const title = name => name.replaceAll('_', ' ');
  // Of a value that says its unit itself: "step" of step_ms.
  const title_with = (name, unit) => title(unit === 'ms' ? name.replace(/_ms(?=_|$)/, '') : name);

  // A sentence whose options (--keep) no line breaks at their hyphens.
  const unbroken = text => text.split(/((?<=^|\s)\(?--[a-z][a-z-]*)/).filter(t => t !== '')
    .map(t => /^\(?--/.test(t) ? element('span', {class: 'option'}, t) : t);

  return {cell, full, tick, title, title_with, unbroken};
})();
