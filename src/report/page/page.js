// The page, made from its data (src/report/page_data.h): a header, its contents, and section by section what the record says.
'use strict';

(() => {
  const record = JSON.parse(document.getElementById('data').textContent), page = document.getElementById('page');
  const drawn = [];  // every chart, to be drawn again in other colours

  // Charts wait until they are near the window: a page with fifty opens as fast as one with two.
  const waiting = new IntersectionObserver(entries => {
    for (const e of entries.filter(x => x.isIntersecting)) {
      waiting.unobserve(e.target);
      const chart = drawn.find(c => c.figure === e.target);
      chart.draw();
      chart.is_drawn = true;
    }
  }, {rootMargin: '600px'});
  const draw_all = again => {
    for (const c of drawn) if (again ? c.is_drawn : !c.is_drawn) c.draw(), c.is_drawn = true;
  };

  function fields_of(parts) {
    const list = element('dl', {class: 'fields'});
    for (const f of parts) {
      const text = words.full(f.value, f.unit);
      list.append(element('div', {class: text.length > 36 ? 'long' : ''}, element('dt', {}, words.title_with(f.name, f.unit)), element('dd', {}, text)));
    }
    return list;
  }

  function charts_of(parts) {  // neighbours of one title share a frame
    const box = element('div', {class: 'charts'}), frames = [];
    for (const c of parts) {
      const last = frames.at(-1);
      if (last && last[0].title === c.title && last[0].kind === c.kind) last.push(c);
      else frames.push([c]);
    }
    const built = frames.map(charts.build);
    fill_rows(built);
    for (const chart of built) {
      drawn.push(chart);
      box.append(chart.figure);
      waiting.observe(chart.figure);
    }
    if (frames.length === 1) box.classList.add('alone');
    return box;
  }

  // Of two columns no place stays empty: a chart without a neighbour takes both.
  function fill_rows(built) {
    let waits = null;
    for (const c of built) {
      if (c.wide) waits?.figure.classList.add('wide');
      waits = c.wide || waits ? null : c;
    }
    waits?.figure.classList.add('wide');
  }

  // A table of one row that is wider than the page is easier to read as single values.
  const most_columns = 8;
  function as_fields(part) {
    if (part.is !== 'table' || part.rows !== 1 || part.left_out > 0) return [part];
    const shown = part.columns.filter(c => c.show !== 'detail'), value = c => 'same' in c ? c.same : c.values[0];
    if (shown.length <= most_columns) return [part];
    const fields = shown.filter(c => value(c) !== null && value(c) !== '').map(c => ({is: 'field', name: c.name, unit: c.unit, value: value(c)}));
    return part.title ? [{is: 'heading', text: part.title}, ...fields] : fields;
  }

  // Neighbouring parts of one kind belong together.
  function runs_of(parts) {
    const runs = [];
    for (const part of parts.map(as_fields).flat()) {
      const last = runs.at(-1);
      if (last && last[0].is === part.is && (part.is === 'field' || part.is === 'chart' || part.is === 'table')) last.push(part);
      else runs.push([part]);
    }
    return runs;
  }

  function fill(into, parts, depth) {
    for (const run of runs_of(parts)) {
      switch (run[0].is) {
        case 'field': into.append(fields_of(run)); break;
        case 'chart': into.append(charts_of(run)); break;
        case 'table': into.append(run.length === 1 ? tables.build(run[0]) : element('div', {class: 'tables'}, ...run.map(tables.build))); break;
        case 'heading': into.append(element('h3', {}, run[0].text)); break;
        case 'note': into.append(element('p', {class: 'note'}, ...words.unbroken(run[0].text))); break;
        case 'record': into.append(section(run[0], depth)); break;
      }
    }
    return into;
  }

  // What is seen first is a picture: charts of the page itself come before its first table.
  function pictures_first(parts) {
    const table = parts.findIndex(p => p.is === 'table');
    const behind = table < 0 ? [] : parts.slice(table), is_chart = p => p.is === 'chart';
    return [...parts.slice(0, parts.length - behind.length), ...behind.filter(is_chart), ...behind.filter(p => !is_chart(p))];
  }

  const contents = [];
  function section(r, depth) {
    const box = element('section', {});
    if (r.title) {
      const id = 'part-' + (contents.length + 1);
      box.id = id;
      box.append(element(depth < 2 ? 'h2' : 'h3', {}, r.title));
      if (depth < 2) contents.push({id, title: r.title});
    }
    return fill(box, r.parts, depth + 1);
  }

  // Light, dark, or as the system has it.
  const themes = ['auto', 'light', 'dark'];
  const theme_button = element('button', {type: 'button', class: 'theme', click: () => {
    const now = document.documentElement.dataset.theme ?? 'auto';
    set_theme(themes[(themes.indexOf(now) + 1) % 3]);
  }});
  function set_theme(theme) {
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    theme_button.textContent = {auto: '◐ Auto', light: '○ Light', dark: '● Dark'}[theme];
    theme_button.setAttribute('aria-label', `Colours: ${theme}. Change`);
    try { localStorage.setItem('headroom theme', theme); } catch {}  // a page from a file may have no storage
    draw_all(true);
  }

  fill(page, pictures_first(record.parts), 1);
  document.getElementById('header').append(element('h1', {}, ...words.unbroken(record.title || 'Headroom')), theme_button);
  const nav = document.getElementById('contents');
  if (contents.length > 1) nav.append(element('ol', {}, ...contents.map(c => element('li', {}, element('a', {href: '#' + c.id}, c.title)))));
  let kept = 'auto';
  try { kept = localStorage.getItem('headroom theme') ?? 'auto'; } catch {}
  set_theme(themes.includes(kept) ? kept : 'auto');

  document.getElementById(location.hash.slice(1))?.scrollIntoView();  // what an address names exists only now

  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => draw_all(true));
  let before = null;
  window.addEventListener('beforeprint', () => {  // on paper it is light, as wide as a sheet, and everything is there
    before = document.documentElement.dataset.theme ?? 'auto';
    document.documentElement.dataset.theme = 'light';
    document.documentElement.classList.add('paper');
    draw_all(true);
    draw_all(false);
  });
  window.addEventListener('afterprint', () => {
    document.documentElement.classList.remove('paper');
    set_theme(before);
  });
})();
