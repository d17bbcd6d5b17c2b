// tables — a table of the page's data as an element: sortable by every column, filtered, copied as Markdown or CSV. Text is only ever
// set as text.
'use strict';

// element('p', {class: 'note'}, 'text', child…): attributes as given, functions as listeners, strings as text.
function element(name, attributes = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') e.addEventListener(key, value);
    else if (value === true) e.setAttribute(key, '');
    else if (value !== false && value !== null) e.setAttribute(key, value);
  }
  e.append(...children.filter(c => c !== null));
  return e;
}

const tables = (() => {
  const first_rows = 25, more_rows = 500, paper_rows = 60, long_words = 24;
  const verdicts = new Set(['ok', 'oom', 'refused', 'failed', 'interrupted', 'slower', 'faster', 'same', 'unclear']);

  const is_number = v => typeof v === 'number';
  const value_of = (column, row) => 'same' in column ? column.same : column.values[row];
  const plain = v => v === null ? '' : String(v);

  function csv(columns, rows) {
    const cell = v => /[",\n\r]/.test(v) ? '"' + v.replaceAll('"', '""') + '"' : v;
    const lines = [columns.map(c => cell(c.name)), ...rows.map(r => columns.map(c => cell(plain(value_of(c, r)))))];
    return lines.map(l => l.join(',')).join('\n') + '\n';
  }

  function markdown(columns, rows) {
    const cell = v => v.replaceAll('\\', '\\\\').replaceAll('|', '\\|').replaceAll('\n', ' ').replaceAll('<', '&lt;');
    const line = cells => '| ' + cells.map(cell).join(' | ') + ' |';
    const rule = '|' + columns.map(c => c.right ? '---:' : '---').join('|') + '|';
    return [line(columns.map(c => c.name)), rule, ...rows.map(r => line(columns.map(c => words.cell(value_of(c, r), c.unit))))].join('\n') + '\n';
  }

  async function copy(text, button) {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {  // a page from a file may not, an old way still can
      const area = element('textarea', {class: 'unseen'});
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand('copy');
      area.remove();
    }
    const was = button.dataset.was ?? (button.dataset.was = button.textContent);
    button.textContent = done ? 'Copied' : 'Not allowed here';
    document.getElementById('said').textContent = button.textContent;
    setTimeout(() => { button.textContent = was; }, 1500);
  }

  function compare(a, b) {  // what is missing comes last in either direction
    if (is_number(a) && is_number(b)) return a - b;
    if (is_number(a) !== is_number(b)) return is_number(a) ? -1 : 1;
    return plain(a).localeCompare(plain(b), 'en', {numeric: true});
  }

  function build(data) {
    const columns = data.columns.map(c => {
      const all = 'same' in c ? [c.same] : c.values, numbers = all.filter(is_number);
      return {...c, right: numbers.length > 0, top: numbers.reduce((a, b) => Math.max(a, b), 0)};
    });
    const state = {by: -1, down: false, filter: '', all_columns: false, most: first_rows};
    const every = [...Array(data.rows).keys()];
    const said_once = columns.filter((c, i) => i > 0 && 'same' in c && c.show !== 'detail');  // they need no column
    const hidden = c => c.show === 'detail' || said_once.includes(c);
    const shown_columns = () => columns.filter(c => state.all_columns || !hidden(c));

    function chosen() {
      const needle = state.filter.toLowerCase();
      const rows = needle === '' ? [...every]
        : every.filter(r => columns.some(c => words.cell(value_of(c, r), c.unit).toLowerCase().includes(needle)));
      if (state.by < 0) return rows;
      const column = columns[state.by], sign = state.down ? -1 : 1;
      const missing = v => v === null || v === '';
      return rows.sort((a, b) => {
        const x = value_of(column, a), y = value_of(column, b);
        if (missing(x) || missing(y)) return missing(x) - missing(y) || a - b;
        return sign * compare(x, y) || a - b;
      });
    }

    function cell_of(column, row) {
      const value = value_of(column, row), text = words.cell(value, column.unit);
      const td = element('td', {class: column.right ? 'number' : ''});
      if (verdicts.has(value)) td.append(element('span', {class: 'verdict ' + value}, text));
      else td.append(...words.unbroken(text));
      if (!column.right && text.length > long_words) td.classList.add('words');
      if (column.show === 'bar' && is_number(value) && column.top > 0) {
        td.classList.add('bar');
        td.style.setProperty('--bar', Math.max(0, value / column.top));
      }
      return td;
    }

    const body = element('tbody'), head = element('tr'), count = element('span', {class: 'count'});
    const rest = element('p', {class: 'note on_paper'});
    const more = element('button', {type: 'button', class: 'more', click: () => { state.most += more_rows; draw(); }});

    function sort_by(index) {
      if (state.by !== index) state.by = index, state.down = columns[index].right && columns[index].show === 'bar';
      else state.down = !state.down;
      draw();
      head.querySelector(`[data-column="${index}"] button`).focus();
    }

    function head_of(column) {
      const index = columns.indexOf(column), mine = state.by === index;
      const order = mine ? (state.down ? 'descending' : 'ascending') : 'none';
      const button = element('button', {type: 'button', title: 'Sort by ' + column.name, click: () => sort_by(index)}, words.title(column.name),
                             element('span', {class: 'arrow', 'aria-hidden': 'true'}, mine ? (state.down ? '↓' : '↑') : ''));
      return element('th', {scope: 'col', class: column.right ? 'number' : '', 'aria-sort': order, 'data-column': index}, button);
    }

    function draw(most = state.most) {
      const rows = chosen(), seen = shown_columns();
      head.replaceChildren(...seen.map(head_of));
      body.replaceChildren(...rows.slice(0, most).map(r => element('tr', {}, ...seen.map(c => cell_of(c, r)))));
      const left = rows.length - Math.min(most, rows.length);
      more.hidden = left === 0;
      more.textContent = left <= more_rows ? `Show all ${words.cell(rows.length)}` : `Show ${more_rows} more of ${words.cell(left)}`;
      rest.hidden = left === 0;
      rest.textContent = `${words.cell(left)} more rows are not printed.`;
      const all = data.rows + data.left_out;
      count.textContent = words.cell(rows.length) + (rows.length === all ? '' : ' of ' + words.cell(all)) + (all === 1 ? ' row' : ' rows');
    }

    const tool = (text, click) => element('button', {type: 'button', click: e => click(e.currentTarget)}, text);
    const tools = element('div', {class: 'tools'}, count);
    if (data.rows > 8)
      tools.append(element('input', {type: 'search', placeholder: 'Filter', 'aria-label': 'Filter rows of ' + (data.title || data.name),
                                     input: e => { state.filter = e.target.value; state.most = first_rows; draw(); }}));
    if (columns.some(hidden))
      tools.append(tool('All columns', b => {
        state.all_columns = !state.all_columns;
        b.setAttribute('aria-pressed', String(state.all_columns));
        draw();
      }));
    tools.append(tool('Copy Markdown', b => copy(markdown(shown_columns(), chosen()), b)), tool('Copy CSV', b => copy(csv(columns, chosen()), b)));

    const box = element('div', {class: 'table', 'data-name': data.name});
    if (data.title) box.append(element('h3', {}, data.title));
    if (data.rows === 0) return box.append(element('p', {class: 'note'}, 'No rows.')), box;
    const table = element('table', {'aria-label': data.title || data.name}, element('thead', {}, head), body);
    const same = said_once.filter(c => plain(c.same) !== '').map(c => words.title(c.name) + ' ' + words.cell(c.same, c.unit)).join(' · ');
    if (same !== '') box.append(element('p', {class: 'note'}, 'In every row: ' + same));
    box.append(tools, element('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': data.title || data.name}, table), more, rest);
    if (data.left_out > 0)
      box.append(element('p', {class: 'note'},
                         `${words.cell(data.left_out)} more rows do not fit into this page; headroom results RUN --format csv has them all.`));
    window.addEventListener('beforeprint', () => draw(Math.max(state.most, paper_rows)));
    window.addEventListener('afterprint', () => draw());
    draw();
    return box;
  }

  return {build};
})();
