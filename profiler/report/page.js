// Draws the report from the JSON beside it. Whatever the run named is text: it goes through textContent, and into charts escaped, since
// Plotly reads a little HTML.
'use strict';
(() => {
const started = performance.now();
const data = JSON.parse(document.getElementById('data').textContent);
const runs = data.other ? [data.run, data.other] : [data.run];
const root = document.documentElement;
const print_rows = 120;              // of a long table, on paper
const paper_width = 660;             // of a chart: a sheet of A4 without its margins and the card's
const row_height = 30;               // as in the style

// --- words and numbers ---------------------------------------------------------------------------------------------------

const fixed = (value, digits) => value.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits});
const missing = value => value === null || value === undefined;
const bytes = value => {
  if (missing(value)) return '\u2013';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) { value /= 1024; ++unit; }
  return fixed(value, unit === 0 ? 0 : 1) + ' ' + units[unit];
};
const time = value => missing(value) ? '\u2013' : value === 0 ? '0 ms' : Math.abs(value) >= 1e10 ? fixed(value / 1e9, 2) + ' s' : Math.abs(value) < 5e4 ? fixed(value / 1e3, 1) + ' \u00b5s' : fixed(value / 1e6, 1) + ' ms';
const signed = (value, format) => missing(value) ? '\u2013' : value === 0 ? 'the same' : (value > 0 ? '+' : '\u2212') + format(Math.abs(value));
const count = value => missing(value) ? '\u2013' : fixed(value, 0);
const percent = value => missing(value) ? '\u2013' : fixed(value * 100, 1) + '\u00a0%';
const ratio = value => missing(value) ? '\u2013' : fixed(value, 3) + ' \u00d7';
const text = value => missing(value) || value === '' ? '\u2013' : String(value);
const joules = value => missing(value) ? '\u2013' : value < 1 ? fixed(value * 1000, 0) + ' mJ' : fixed(value, value < 100 ? 2 : 0) + ' J';
const watts = value => missing(value) ? '\u2013' : fixed(value, 0) + ' W';
const yes_no = value => missing(value) ? '\u2013' : value ? 'yes' : 'no';
const plural = (number, noun) => count(number) + ' ' + noun + (number === 1 ? '' : 's');
const escaped = name => String(name).slice(0, 60).replace(/[&<>"']/g, c => '&#' + c.charCodeAt(0) + ';').replace(/[\u0000-\u001f]/g, '\ufffd');

const layer_of = (run, number) => (run.layer_by_number ??= new Map(run.layers.map(l => [l.layer, l]))).get(number);
const tensor_of = (run, number) => (run.tensor_by_number ??= new Map(run.tensors.map(t => [t.tensor, t]))).get(number);
const tensor_name = (run, number) => tensor_of(run, number)?.name ?? 'tensor ' + number;
const layer_name = (run, number) => number < 0 ? '(no layer)' : layer_of(run, number)?.name ?? String(number);
const layer_phase = (run, number) => layer_of(run, number)?.phase ?? '';

function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties)) {
    if (key === 'class') made.className = value;
    else if (key === 'on') for (const [event, act] of Object.entries(value)) made.addEventListener(event, act);
    else if (key === 'data') Object.assign(made.dataset, value);
    else if (!missing(value)) made.setAttribute(key, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

// A figure on the page is its text and, for who checks it, the number and its place in the JSON.
function figure(run, path, format, tag = 'span') {
  const value = path.split('.').reduce((at, key) => missing(at) ? at : at[key], run);
  return element(tag, {data: {figure: (run === data.run ? 'run.' : 'other.') + path, value: missing(value) ? '' : String(value)}}, format(value));
}

// --- charts --------------------------------------------------------------------------------------------------------------

const css = name => getComputedStyle(root).getPropertyValue('--' + name).trim();
const charts = [];
let on_paper = false;
let library = 'waiting';               // then 'there' or 'missing'
const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) charts.find(c => c.host === entry.target)?.draw();
}, {rootMargin: '300px'});

// `build` gives {traces, layout}; it is asked again when the theme changes. `after` is told of each drawing.
function chart(label, height, build, after) {
  const host = element('div', {class: 'chart', role: 'img', 'aria-label': label, style: 'height:' + height + 'px'});
  const made = {host, drawn: false, draw(again = false) {
    if (library === 'waiting' || (this.drawn && !again)) return;
    this.drawn = true;
    watcher.unobserve(host);
    if (library === 'missing') { host.textContent = 'Charts are missing: this vedette was built without Plotly. The tables are complete.'; host.style.height = 'auto'; host.style.minHeight = 0; return; }
    const {traces, layout} = build();
    const axis = {gridcolor: css('line'), zerolinecolor: css('line'), linecolor: css('line'), tickfont: {size: 11}, automargin: true, exponentformat: 'none', separatethousands: true};
    const whole = {paper_bgcolor: 'rgba(0,0,0,0)', plot_bgcolor: 'rgba(0,0,0,0)', font: {family: css('sans'), color: css('ink'), size: 12},
      margin: {l: 60, r: 16, t: 28, b: 44}, hovermode: 'x unified', legend: {orientation: 'h', y: 1.02, yanchor: 'bottom', x: 0, font: {size: 11.5}, traceorder: 'normal'},
      hoverlabel: {bgcolor: css('card'), bordercolor: css('line'), font: {color: css('ink')}}, bargap: 0.15, height, ...layout};
    for (const key of ['xaxis', 'yaxis', 'yaxis2', 'xaxis2']) if (whole[key]) whole[key] = {...axis, ...whole[key]};
    if (on_paper) whole.width = paper_width;
    Plotly.react(host, traces, whole, {displayModeBar: false, responsive: true});
    if (after) after(host);
  }};
  charts.push(made);
  if (library !== 'waiting') watcher.observe(host);
  host.redraw = () => made.draw(true);
  return host;
}

// The charts' library is most of what a browser has to read here, so it is text until the figures and tables are there to look at.
function load_charts() {
  if (library !== 'waiting') return;
  const script = element('script');
  script.textContent = document.getElementById('charts').textContent;
  document.head.append(script);
  library = typeof Plotly === 'undefined' ? 'missing' : 'there';
  for (const each of charts) watcher.observe(each.host);
}

const mib = value => value / 1048576;
const ms = value => value / 1e6;
const largest = (list, of) => list.reduce((so_far, each) => Math.max(so_far, of(each) ?? 0), 0);
// Two runs side by side are drawn to one scale: of(run) is the largest number of a run that an axis has to hold.
const scale_of = of => runs.length < 2 ? {rangemode: 'tozero'} : {range: [0, 1.05 * largest(runs, of)]};

// --- tables --------------------------------------------------------------------------------------------------------------

// A table that holds any number of rows and shows those in view. columns: {key, label, format, number, cell(row)}.
function table(rows, columns, options = {}) {
  let shown = rows.slice(), sort = options.sort ?? null, first = -1, all = false, marked = null;
  const body = element('tbody');
  const counter = element('span', {class: 'count', 'aria-live': 'polite'});
  const heads = columns.map(column => {
    const head = element('th', {scope: 'col', class: column.number ? 'number' : '', 'aria-sort': 'none', title: column.title},
      element('button', {type: 'button', on: {click: () => order(column.key)}}, column.label));
    return head;
  });
  const box = element('div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': options.label},
    element('table', {'aria-rowcount': rows.length}, element('thead', {}, element('tr', {}, ...heads)), body));
  const value = (row, key) => row[key];
  function order(key, keep) {
    const column = columns.find(c => c.key === key);
    const down = keep ? sort.down : sort?.key === key ? !sort.down : Boolean(column.number);
    sort = {key, down};
    heads.forEach((head, i) => head.setAttribute('aria-sort', columns[i].key === key ? (down ? 'descending' : 'ascending') : 'none'));
    const sign = down ? -1 : 1;
    shown.sort((a, b) => {
      const x = value(a, key), y = value(b, key);
      if (missing(x) || missing(y)) return missing(x) - missing(y);
      return sign * (typeof x === 'number' && typeof y === 'number' ? x - y : String(x).localeCompare(String(y), 'en', {numeric: true}));
    });
    fill(true);
  }
  function line(row, index) {
    const made = element('tr', {'aria-rowindex': index + 2, class: row === marked ? 'marked' : null});
    for (const column of columns) {
      const cell = element('td', {class: (column.number ? 'number ' : '') + (column.class ?? '')});
      if (options.path) Object.assign(cell.dataset, {figure: options.path(row) + '.' + column.key, value: missing(row[column.key]) ? '' : String(row[column.key])});
      if (column.cell) cell.append(column.cell(row));
      else cell.textContent = column.format(row[column.key]);
      if (!column.number) cell.title = cell.textContent;
      if (column.share) {
        cell.classList.add('share');
        cell.append(element('i', {style: 'width:' + (column.most > 0 ? Math.max(0, 100 * row[column.key] / column.most) : 0).toFixed(1) + '%'}));
      }
      made.append(cell);
    }
    return made;
  }
  function spacer(height) {
    return element('tr', {class: 'spacer', 'aria-hidden': 'true'}, element('td', {colspan: columns.length, style: 'height:' + height + 'px'}));
  }
  function fill(again) {
    const view = all ? Math.min(shown.length, print_rows) : Math.ceil((box.clientHeight || 520) / row_height) + 20;
    const at = all ? 0 : Math.max(0, Math.min(Math.floor(box.scrollTop / row_height) - 10, shown.length - view));
    if (at === first && !again) return;
    first = at;
    const last = Math.min(shown.length, at + view);
    body.replaceChildren(...(at > 0 ? [spacer(at * row_height)] : []), ...shown.slice(at, last).map((row, i) => line(row, at + i)),
      ...(last >= shown.length ? [] : all ? [element('tr', {}, element('td', {colspan: columns.length}, 'and ' + count(shown.length - last) + ' more, not printed'))]
        : [spacer((shown.length - last) * row_height)]));
    counter.textContent = count(shown.length) + (shown.length === rows.length ? '' : ' of ' + count(rows.length)) + ' ' + (options.noun ?? 'rows');
  }
  box.addEventListener('scroll', () => requestAnimationFrame(() => fill(false)), {passive: true});
  window.addEventListener('beforeprint', () => { all = true; fill(true); });
  window.addEventListener('afterprint', () => { all = false; fill(true); });
  for (const column of columns) if (column.share) column.most = rows.reduce((most, row) => Math.max(most, row[column.key] ?? 0), 0);
  box.filter = keep => { shown = rows.filter(keep); box.scrollTop = 0; if (sort) order(sort.key, true); else fill(true); };
  box.show = wanted => {
    const at = shown.findIndex(wanted);
    if (at < 0) return;
    marked = shown[at];
    box.scrollIntoView({block: 'center'});
    box.scrollTop = Math.max(0, (at - 3) * row_height);
    fill(true);
  };
  box.counter = counter;
  if (sort) order(sort.key, true); else fill(true);
  return box;
}

// --- sections ------------------------------------------------------------------------------------------------------------

const sections = [];
function section(id, short, title, say, draw, options = {}) { sections.push({id, short, title, say, draw, options}); }

function tiles(run, list) {
  const made = element('dl', {class: 'tiles'});
  for (const [label, path, format, small, mood] of list) {
    const shown = figure(run, path, format, 'dd');
    if (mood) shown.classList.add(mood);
    if (small) shown.append(element('small', {}, ...[].concat(small)));
    made.append(element('div', {class: 'tile'}, element('dt', {}, label), shown));
  }
  return made;
}

function verdict(run) {
  const h = run.headline;
  if (h.imported === 'damon') return bytes(h.peak_bytes) + ' of memory, watched in ' + plural(h.ops, 'snapshot') + ' over ' + time(h.median_step_ns) + '.';
  if (h.imported) return 'A step of ' + plural(h.ops, 'operator') + ' with ' + bytes(h.peak_bytes) + ' of live memory at its peak.';
  if (missing(h.fits) || !h.peak_bytes) return 'A recording of ' + plural(h.steps, 'step') + '.';
  const fit = h.fits ? 'It fits' : 'It does not fit';
  const where = bytes(h.peak_bytes) + ' of live memory in ' + bytes(h.budget_bytes) + ' (' + fixed(h.budget_share * 100, 0) + '\u00a0%)';
  const speed = !missing(h.speed_of_plain) ? ', at ' + fixed(h.speed_of_plain, 2) + '\u00a0\u00d7 the speed of plain training'
    : !missing(h.speed_of_bound) ? ', at ' + fixed(h.speed_of_bound, 2) + '\u00a0\u00d7 the speed that no plan of whole ops can exceed' + (run.noise.disturbed ? ' (other load disturbed the run, so that this is not the plan\u2019s doing alone)' : '') : '';
  return fit + ': ' + where + speed + '.';
}

// An import tells what the program did. What a run of it would take is simulated, in Budgets.
function imported_tiles(run) {
  const watched = run.headline.imported === 'damon';
  return tiles(run, [
    [watched ? 'Snapshots' : 'Operators', 'headline.ops', count, watched ? 'each of one target and time' : ['and ', count(run.tensors.length), ' tensors']],
    [watched ? 'Memory watched' : 'Peak of live memory', 'headline.peak_bytes', bytes, watched ? 'regions that a monitor looked at' : 'what plain training needs'],
    [watched ? 'Watched for' : 'Step', 'headline.median_step_ns', time, watched ? 'from the first snapshot to the last' : 'the operators\u2019 own times, one after the other']]);
}

// --- where the time goes, and what would change it ---

const lost_words = {
  operators: ['Operators, longer', 'What operators took beyond their least time in this recording: bytes that move beside them, chunks that are mapped anew, other programs.'],
  'late fetch': ['Stalls: late fetch', 'An op waited for an operand that was still on its way, or had not left.'],
  'no room': ['Stalls: no room', 'An allocation waited for room, and nothing was being written.'],
  write: ['Stalls: write', 'What was waited for was room, and its bytes were still being written to the slow tier.'],
  fault: ['Faults', 'Accesses that no op announced.']};

function lost_layers(run, lost) {
  const most = 12, rows = lost.layers.slice(0, most).map(([layer, ns]) => element('li', {}, element('button', {type: 'button', class: 'in-cell', on: {click: () => run.show_layer?.(layer)}},
    layer_name(run, layer)), ' ' + layer_phase(run, layer) + ' ', element('b', {}, time(ns))));
  return element('div', {class: 'lost'}, element('p', {}, lost_words[lost.cause][1] + (lost.in_bound_ns > 0 ? ' Another ' + time(lost.in_bound_ns) + ' of it no plan avoids: they are in the bound.' : '') +
    (lost.cause === 'operators' && run.waterfall.beside_moves_ns > 0 ? ' ' + time(run.waterfall.beside_moves_ns) + ' of it were in operators beside which bytes moved.' : '')),
    rows.length > 0 ? element('ol', {}, ...rows) : element('p', {}, 'No layer lost time in this way.'), lost.layers.length > most ? element('p', {}, 'and ' + plural(lost.layers.length - most, 'layer') + ' with less') : null);
}

function waterfall(run) {
  const w = run.waterfall, end = r => r.waterfall.known ? Math.max(r.waterfall.step_ns, r.waterfall.bound_ns, r.headline.plain_step_ns ?? 0) : 0;
  const whole = Math.max(...runs.map(end)), share = ns => (100 * ns / whole).toFixed(3) + '%';
  const row = (tag, kind, label, from, ns, value, properties = {}) => element(tag, {class: 'fall ' + kind, ...properties}, element('span', {class: 'label'}, label),
    element('span', {class: 'track', 'aria-hidden': 'true'}, ns > 0 ? element('i', {style: 'left:' + share(from) + ';width:' + share(ns)}) : ''), value);
  const shown = (path, sign = '') => { const made = figure(run, path, ns => (ns > 0 ? sign : '') + time(ns)); made.classList.add('value'); return made; };
  const made = element('div', {class: 'waterfall'});
  if (!missing(run.headline.plain_step_ns)) made.append(row('div', 'plain', 'Plain step', 0, run.headline.plain_step_ns, shown('headline.plain_step_ns')));
  made.append(row('div', 'bound', 'Bound: no plan is faster', 0, w.bound_ns, shown('waterfall.bound_ns')));
  let at = w.bound_ns;
  w.lost.forEach((lost, i) => {
    const details = element('div', {hidden: ''});
    const open = event => {
      if (!details.firstChild) details.append(lost_layers(run, lost));
      details.hidden = !details.hidden;
      event.currentTarget.setAttribute('aria-expanded', String(!details.hidden));
    };
    made.append(row('button', lost.cause.replace(' ', '-'), lost_words[lost.cause][0], at, lost.time_ns, shown('waterfall.lost.' + i + '.time_ns', '+ '), {type: 'button', 'aria-expanded': 'false', on: {click: open}}), details);
    at += lost.time_ns;
  });
  made.append(row('div', 'step', 'Step ' + text(run.shown_step), 0, w.step_ns, shown('waterfall.step_ns')));
  if (!missing(w.processor_wait) && run.noise.disturbed) made.append(element('p', {}, 'In ', figure(run, 'waterfall.processor_wait', percent), ' of the time tasks of this machine waited for a processor. It makes operators longer, and no plan changes it.'));
  if (w.ahead_ns > 0) made.append(element('p', {}, 'The step was ', figure(run, 'waterfall.ahead_ns', time), ' faster than the bound, which is one of whole operators: large ones ran in sections.'));
  return made;
}

function advice(run) {
  const a = run.advised, measured = run.waterfall.step_ns;
  if (a.lines.length === 0) return a.note === '' ? null : element('p', {}, a.note);
  const made = element('div', {}, element('ol', {class: 'advice'}, ...a.lines.map((line, i) => {
    const price = figure(run, 'advised.lines.' + i + '.step_ns', ns => Math.abs(ns / measured - 1) < 0.005 ? 'as fast' : signed(Math.round((ns / measured - 1) * 1000) / 1000, percent), 'b');
    price.className = line.step_ns < measured * 0.995 ? 'good' : '';
    return element('li', {}, line.sentence.replace(' -> ', ' \u2192 '), ' ', price);
  })), element('p', {}, 'Simulated on this recording, in chunks as a session lays them; the run as it was simulates to ', figure(run, 'advised.simulated_ns', time), '. A line is the measured step, of which stalls shrink by as much as the simulated ones do, and what operators take longer beside moves as the moved bytes do; stalls that are new, and operators that run again, come as simulated.'));
  if (a.note !== '') made.append(element('p', {}, a.note));
  return made;
}

section('fit', 'Fit and speed', 'Does it fit, and how fast is it?', '', (host, run) => {
  const h = run.headline;
  if (run.waterfall.known) host.append(element('div', {class: 'card'}, element('h3', {}, 'Where the step\u2019s time goes: open a part for its layers'), waterfall(run), element('h3', {}, 'What to change'), advice(run)));
  if (h.imported === 'damon') return host.append(imported_tiles(run));
  if (h.imported) return host.append(imported_tiles(run), element('p', {}, 'Nothing ran here: whether a step fits a budget, and how fast it is, is simulated in ', element('a', {href: '#budgets'}, 'Budgets'), '.'));
  host.append(tiles(run, [
    ['Stays within the budget', 'headline.fits', yes_no, ['resident at most ', figure(run, 'headline.resident_max_bytes', bytes)], missing(h.fits) ? null : h.fits ? 'good' : 'bad'],
    ['Budget', 'headline.budget_bytes', bytes, [figure(run, 'headline.budget_share', percent), ' of the peak']],
    ['Peak of live memory', 'headline.peak_bytes', bytes, 'what plain training would need'],
    ['Step, median', 'headline.median_step_ns', time, ['quartiles ', figure(run, 'headline.step_quartiles_ns.0', time), ' to ', figure(run, 'headline.step_quartiles_ns.1', time), '; of ', figure(run, 'headline.steady_steps', count), ' steady, ', figure(run, 'headline.steps', count), ' in all']],
    ['Speed, of plain', 'headline.speed_of_plain', ratio, missing(h.plain_step_ns) ? 'not known: tell it with --plain-ms' : ['a plain step takes ', figure(run, 'headline.plain_step_ns', time)]],
    ['Speed, of the bound', 'headline.speed_of_bound', ratio, ['with the operators\u2019 times of this recording no step is faster than ', figure(run, 'headline.bound_ns', time)]],
    ['Stalls in a step', 'headline.stall_ns', time, [figure(run, 'headline.stall_share', percent), ' of its time']],
    ...(run.noise.known || run.noise.disturbed ? [['Disturbed', 'noise.disturbed', yes_no, noise_words(run), run.noise.disturbed ? 'bad' : 'good']] : []),
    ...(run.energy ? [['Energy of a step', 'energy.median_j', joules, ['the median on ' + run.energy.device + '; mean ', figure(run, 'energy.mean_j', joules), ' of ', figure(run, 'energy.steps', count), ', at ', figure(run, 'energy.watts', watts)]]] : []),
    ...(run.gpu ? [['On the GPU, in all', 'gpu.gpu_bytes', bytes, [figure(run, 'gpu.gpu_beside_bytes', bytes), ' beside the budget, at most ', figure(run, 'gpu.gpu_most_beside_bytes', bytes), ': operators that need more ', figure(run, 'gpu.gpu_large_bytes', bytes), ', graphs ', figure(run, 'gpu.gpu_pool_bytes', bytes), ', workspaces ', figure(run, 'gpu.gpu_workspace_bytes', bytes), ', context ', figure(run, 'gpu.gpu_context_bytes', bytes)]], ['Host memory, locked', 'gpu.locked_bytes', bytes, ['tensors lie in ', figure(run, 'gpu.in_locked_bytes', bytes), '; pageable behind it ', figure(run, 'gpu.pageable_bytes', bytes)]]] : []),
    ...(run.wear && run.wear.words !== '' ? [['Written to the disk', 'wear.disk_bytes_out', bytes, ['a step; ', run.wear.words]]] : []),
    ['Moved in a step', 'headline.bytes_in', bytes, ['in; out ', figure(run, 'headline.bytes_out', bytes), '; faults ', figure(run, 'headline.faults', count)]],
    ...(h.bytes_in_place > 0 ? [['Used in place', 'headline.bytes_in_place', bytes, 'by the ops of a step, where they lay in slower memory']] : [])]));
  if (run.steps.length > 0) host.append(element('div', {class: 'card'}, element('h3', {}, 'Step by step'), steps_chart(run)));
});

// What the machine did beside the steady steps, medians.
function noise_words(run) {
  const n = run.noise;
  if (!n.known) return 'by the quartiles; what else the machine did was not recorded';
  const share = (path, words) => missing(n[path]) ? [] : [figure(run, 'noise.' + path, percent), words];
  return ['a step had ', figure(run, 'noise.processor_ns', time), ' of processors and ', figure(run, 'noise.switches', count), ' involuntary switches; ',
    ...share('steal_share', ' stolen; '), ...share('processor_wait_share', ' with tasks that wait for a processor, '), ...share('memory_wait_share', ' for memory, '), ...share('io_wait_share', ' for input and output')];
}

function steps_chart(run) {
  return chart('Time of each step, with its stalls', 250, () => {
    const x = run.steps.map(s => s.step);
    const prepares = s => s.phase === 'warm-up' || s.phase === 'profiling';
    const running = (name, kept, shape) => run.steps.some(kept) ? [{type: 'bar', name, x, y: run.steps.map(s => kept(s) ? ms(s.time_ns - s.stall_ns) : null),
      marker: {color: css('live'), pattern: {shape, fillmode: 'overlay', fgcolor: css('card'), size: 6}}, customdata: run.steps.map(s => escaped(s.phase)), hovertemplate: '%{y:.1f} ms %{customdata}'}] : [];
    return {traces: [
      ...running('running', s => !prepares(s), ''), ...running('warm-up and profiling', prepares, '/'),
      {type: 'bar', name: 'stalled', x, y: run.steps.map(s => ms(s.stall_ns)), marker: {color: css('budget'), pattern: {shape: 'x', fillmode: 'overlay', fgcolor: css('card'), size: 5}}, hovertemplate: '%{y:.1f} ms'}],
    layout: {barmode: 'stack', xaxis: {title: {text: 'step'}, tickformat: 'd'}, yaxis: {title: {text: 'ms'}, ...scale_of(r => ms(largest(r.steps, s => s.time_ns)))}}};
  });
}

section('memory', 'Memory', 'Memory over a step',
  'What lives and, in a run, what of it is in fast memory and what moves. The shading tells the phase; the dashed line is the budget.', (host, run) => {
  if (run.memory.samples.length === 0 && run.memory.moved.length === 0) return host.append(element('p', {}, 'The recording has no ops of a whole step.'));
  host.append(element('div', {class: 'card'}, chart('Live and resident memory over a step', 440, () => memory_figure(run)),
    element('p', {}, (run.headline.imported ? '' : 'Step ' + text(run.shown_step) + ', the median one. ') + 'Live memory was ' + run.memory.live_source + '.')));
});

function memory_figure(run) {
  const m = run.memory, x = m.samples.map(s => ms(s[0]));
  const middle = m.moved.map(r => ms((r[0] + r[1]) / 2)), width = m.moved.map(r => ms(r[1] - r[0]));
  const end_of = r => ms(r.memory.moved.at(-1)?.[1] ?? r.memory.samples.at(-1)?.[0] ?? 0);
  const end = end_of(run), longest = largest(runs, end_of), moved = largest(runs, r => mib(largest(r.memory.moved, slice => Math.max(slice[2], slice[3]))));
  const measured = m.live_source === 'measured';
  const traces = [
    ...(measured ? [{name: 'resident', x, y: m.samples.map(s => mib(s[2])), line: {color: css('resident'), width: 1, shape: 'hv'}, fill: 'tozeroy', fillcolor: css('resident') + '44'}] : []),
    {name: 'live', x, y: m.samples.map(s => mib(s[1])), line: {color: css('live'), width: 2, shape: 'hv'}},
    ...(missing(run.headline.budget_bytes) ? [] : [{name: 'budget', x: [0, end], y: [mib(run.headline.budget_bytes), mib(run.headline.budget_bytes)], line: {color: css('budget'), width: 2, dash: 'dash'}, hoverinfo: 'skip'}]),
    ...(run.headline.imported ? [] : [{type: 'bar', name: 'moved in', x: middle, width, y: m.moved.map(r => mib(r[2])), marker: {color: css('in')}, yaxis: 'y2'},
    {type: 'bar', name: 'moved out', x: middle, width, y: m.moved.map(r => -mib(r[3])), marker: {color: css('out'), pattern: {shape: '/', fillmode: 'overlay', fgcolor: css('card'), size: 4}}, yaxis: 'y2'}])];
  for (const t of traces) if (!t.type) { t.type = 'scatter'; t.mode = 'lines'; }
  for (const t of traces) if (!t.hoverinfo) t.hovertemplate = '%{y:.1f} MiB';
  const wide = longest / 14;
  return {traces, layout: {barmode: 'relative', bargap: 0,
    shapes: m.phases.map(p => ({type: 'rect', xref: 'x', yref: 'paper', x0: ms(p.time_ns[0]), x1: ms(p.time_ns[1]), y0: 0, y1: 1, fillcolor: css(p.phase), line: {width: 0}, layer: 'below'})),
    annotations: m.phases.filter(p => ms(p.time_ns[1] - p.time_ns[0]) > wide).map(p => ({text: p.phase, showarrow: false, xref: 'x', yref: 'paper', x: ms((p.time_ns[0] + p.time_ns[1]) / 2), y: 1,
      yanchor: 'bottom', font: {size: 11, color: css('soft')}})),
    legend: {orientation: 'h', y: 1.06, yanchor: 'bottom', x: 0, font: {size: 11.5}, traceorder: 'normal'},
    xaxis: {title: {text: 'ms since the step began'}, range: [0, longest], anchor: run.headline.imported ? 'y' : 'y2', ticksuffix: '', hoverformat: '.1f'},
    yaxis: {title: {text: 'MiB'}, domain: [run.headline.imported ? 0 : 0.34, 1], ...scale_of(r => mib(Math.max(r.headline.budget_bytes, largest(r.memory.samples, sample => Math.max(sample[1], sample[2])))))},
    yaxis2: {title: {text: 'MiB moved'}, domain: [0, 0.26], ...(runs.length < 2 ? {} : {range: [-1.1 * moved, 1.1 * moved]})}}};
}

/*{map}*/
/*{prices}*/
/*{timeline}*/
section('layers', 'Layers', 'Layers', 'In the order in which they run. Bytes count once however often a layer touches them; a transfer belongs to the layer in which it ended.',
  (host, run) => {
  const rows = run.layers.map((l, i) => ({...l, order: i, label: l.layer < 0 ? '(ops without a layer)' : l.name}));
  const box = table(rows, [
    {key: 'order', label: '#', number: true, format: count}, {key: 'label', label: 'Layer', class: 'name', format: text}, {key: 'phase', label: 'Phase', format: text},
    {key: 'ops', label: 'Ops', number: true, format: count}, {key: 'time_ns', label: 'Time', number: true, format: time, share: true, title: 'without its stalls'},
    {key: 'read_bytes', label: 'Read', number: true, format: bytes, share: true}, {key: 'written_bytes', label: 'Written', number: true, format: bytes, share: true},
    {key: 'moved_in_bytes', label: 'Moved in', number: true, format: bytes, share: true}, {key: 'moved_out_bytes', label: 'Moved out', number: true, format: bytes, share: true},
    {key: 'stall_ns', label: 'Stall', number: true, format: time, share: true}, {key: 'faults', label: 'Faults', number: true, format: count}],
    {label: 'Layers', noun: 'layers', sort: {key: 'order', down: false}, path: row => (run === data.run ? 'run' : 'other') + '.layers.' + row.order});
  run.show_layer = layer => box.show(row => row.layer === layer);
  host.append(element('div', {class: 'card'}, element('div', {class: 'controls'}, box.counter), box));
}, {long: true, stacked: true});

section('tensors', 'Tensors', 'Tensors',
  'Hot: never idle long enough to go out and come back over the links. Cold: idle that long at least once a step. Short-lived: lives within one layer. A name shows its pages.',
  (host, run) => {
  const rows = run.tensors.map(t => ({...t, lifetime: t.persistent ? -1 : t.life ? t.life[0] : null, accesses: t.reads + t.writes,
    where: t.first_layer === t.last_layer ? t.first_layer : t.first_layer + ' \u2192 ' + t.last_layer}));
  const box = table(rows, [
    {key: 'name', label: 'Tensor', class: 'name', cell: row => element('button', {type: 'button', class: 'in-cell', title: row.name + (row.shape.length ? ' [' + row.shape.join(', ') + ']' : '') + (row.site ? ', from ' + row.site : ''),
      on: {click: () => run.zoom?.(row.tensor)}}, row.name)},
    {key: 'role', label: 'Role', format: text}, {key: 'bytes', label: 'Bytes', number: true, format: bytes, share: true},
    {key: 'class', label: 'Class', cell: row => element('span', {class: 'tag ' + row.class}, row.class)}, {key: 'tier', label: 'Home', format: text},
    {key: 'fetches', label: 'In', number: true, format: count, title: 'moves into fast memory in the shown step'}, {key: 'evictions', label: 'Out', number: true, format: count, title: 'moves out of it'},
    {key: 'reads', label: 'Reads', number: true, format: count}, {key: 'writes', label: 'Writes', number: true, format: count}, {key: 'longest_gap_ns', label: 'Longest gap', number: true, format: time},
    {key: 'lifetime', label: 'Lives', cell: row => row.persistent ? 'always' : row.life ? 'op ' + count(row.life[0]) + ' to ' + count(row.life[1] - 1) : '\u2013'},
    {key: 'where', label: 'Layers', class: 'name', format: text}],
    {label: 'Tensors', noun: 'tensors', sort: {key: 'bytes', down: true}, path: row => (run === data.run ? 'run' : 'other') + '.tensors.' + row.tensor});
  const filter = element('input', {type: 'search', class: 'tensor-filter', placeholder: 'filter: name, shape, site, layer (/)', 'aria-label': 'Filter tensors', on: {input: () => apply()}});
  const pick = (label, key) => {
    const values = [...new Set(rows.map(r => r[key]))].filter(v => v !== '').sort();
    return element('select', {'aria-label': label, on: {change: () => apply()}, data: {key}}, element('option', {value: ''}, 'every ' + label), ...values.map(v => element('option', {value: v}, v)));
  };
  const picks = [pick('role', 'role'), pick('class', 'class'), pick('home', 'tier')];
  for (const row of rows) row.words = [row.name, row.shape.join('x'), row.site, row.where].join(' ').toLowerCase();
  function apply() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    box.filter(row => words.every(word => row.words.includes(word)) && picks.every(p => p.value === '' || row[p.dataset.key] === p.value));
  }
  host.append(element('div', {class: 'card'}, element('div', {class: 'controls'}, filter, ...picks, box.counter), box));
  if (run.tensors_left_out > 0) host.append(element('p', {}, 'The ', count(run.tensors.length), ' tensors that moved most, then the largest, are in this page; the other ',
    figure(run, 'tensors_left_out', count), ' are counted in every figure and listed by --json.'));
}, {long: true, stacked: true});

section('brief', 'Short-lived', 'What lives within one layer', 'Such tensors need a reserved place in fast memory and no plan: they are never moved.', (host, run) => {
  const s = run.short_lived;
  host.append(tiles(run, [
    ['Short-lived tensors', 'short_lived.tensors', count, ['of ', figure(run, 'short_lived.all_tensors', count), ' (' + percent(s.all_tensors ? s.tensors / s.all_tensors : null) + ')']],
    ['Their bytes', 'short_lived.bytes', bytes, ['of ', figure(run, 'short_lived.all_bytes', bytes), ' (' + percent(s.all_bytes ? s.bytes / s.all_bytes : null) + ')']],
    ['Alive at once', 'short_lived.peak_bytes', bytes, 'the room to reserve'],
    ['Scratch of one op', 'short_lived.scratch_peak_bytes', bytes, 'most of it; counted as no tensor']]));
});

section('sharing', 'Sharing', 'False sharing that co-allocation removed',
  'A page or chunk is shared falsely when two tensors that live in it at the same time are not touched by the same layers: moving one drags the other. Before: the same tensors as an ordinary first-fit allocator lays them.',
  (host, run) => {
  if (!run.sharing.known) return host.append(element('p', {}, 'The recording does not say where its tensors lie.'));
  const rows = [['Pages of ' + bytes(run.heat.page_bytes), 'pages'], ['Chunks, what moves as one', 'chunks']];
  const cells = key => ['before', 'after'].flatMap(when => [figure(run, 'sharing.' + key + '_' + when + '.shared', count, 'td'), figure(run, 'sharing.' + key + '_' + when + '.dragged_bytes', bytes, 'td')]);
  const body = rows.map(([label, key]) => element('tr', {}, element('td', {}, label), figure(run, 'sharing.' + key + '_after.used', count, 'td'), ...cells(key)));
  for (const row of body) for (const cell of [...row.children].slice(1)) cell.className = 'number';
  const head = ['', 'In use', 'Shared before', 'Dragged before', 'Shared now', 'Dragged now'];
  host.append(element('div', {class: 'card'}, element('div', {class: 'scroll'}, element('table', {}, element('thead', {}, element('tr', {}, ...head.map((label, i) => element('th', {scope: 'col', class: i ? 'number' : '', style: 'padding:.42rem .55rem'}, label)))),
    element('tbody', {}, ...body))), element('p', {}, 'Dragged: summed over the layers of a step, living bytes in what a layer touches that it does not touch itself.')));
}, {stacked: true});

section('budgets', 'Budgets', 'What another budget would cost', '', (host, run) => {
  const r = run.reuse;
  if (r.curve.length === 0) return host.append(element('p', {}, 'There is no profile to tell from.'));
  host.append(element('p', {}, budget_words(run)));
  if (r.curve.some(p => !missing(p.step_ns) || !missing(p.transfer_ns))) host.append(element('div', {class: 'card'}, chart('Step time and stalls against fast memory', 440, () => budget_figure(run))));
  const rows = r.curve.map((p, i) => ({...p, order: i}));
  const box = table(rows, [
    {key: 'share', label: 'Of the peak', number: true, format: percent}, {key: 'fast_memory_bytes', label: 'Fast memory', number: true, format: bytes},
    {key: 'step_ns', label: 'Step', number: true, format: time}, {key: 'stall_ns', label: 'Stall', number: true, format: time, share: true}, {key: 'bound_ns', label: 'Bound', number: true, format: time},
    {key: 'bytes_in', label: 'In', number: true, format: bytes}, {key: 'bytes_out', label: 'Out', number: true, format: bytes},
    {key: 'lru_in_bytes', label: 'LRU would fetch', number: true, format: bytes}, {key: 'note', label: 'Remark', class: 'note', format: value => value ?? ''}],
    {label: 'Budgets', noun: 'budgets', path: row => (run === data.run ? 'run' : 'other') + '.reuse.curve.' + row.order});
  host.append(element('div', {class: 'card'}, box), prices_card(run));
  const reuse = chart('Reuse distances', 260, () => reuse_figure(run, on_paper ? paper_width : reuse.clientWidth));
  host.append(element('div', {class: 'card'}, element('h3', {}, 'Reuse distances: bytes of other tensors touched between two accesses and still alive'), reuse));
}, {long: true});

function budget_words(run) {
  if (run.reuse.simulated) return 'From the simulator, with the policy ' + run.reuse.policy + ' on the profiled step; the bound is proven: no plan is faster. ' + (run.headline.imported ? '' : 'The star is this run. ' + simulated_words(run));
  return 'What a fast tier would fetch from which the least recently used leaves. No simulator ran' +
    (run.machine.tiers.length > 1 ? '.' : ': the recording names no machine with a slow tier. Name one to have steps simulated: vedette report --machine a100-g10.');
}

// How far the simulator is from what happened, where it simulated about this run's budget.
function simulated_words(run) {
  const h = run.headline, known = run.reuse.curve.filter(p => !missing(p.bytes_in));
  const near = known.reduce((best, p) => !best || Math.abs(p.share - h.budget_share) < Math.abs(best.share - h.budget_share) ? p : best, null);
  return 'It is somewhat optimistic: its tensors move to the byte, where a run moves whole chunks and the links are not always as fast as told.' +
    (near && Math.abs(near.share - h.budget_share) < 0.02 ? ' At ' + percent(near.share) + ' it fetches ' + bytes(near.bytes_in) + ' in a step of ' + time(near.step_ns) + '; this run, at ' + percent(h.budget_share) +
      ', fetched ' + bytes(h.bytes_in) + ' in one of ' + time(h.median_step_ns) + '.' : '');
}

function budget_figure(run) {
  const points = run.reuse.curve.filter(p => !missing(p.step_ns)), h = run.headline, x = points.map(p => mib(p.fast_memory_bytes));
  const traces = [];
  if (points.length > 0) {
    traces.push({name: 'simulated step', x, y: points.map(p => ms(p.step_ns)), mode: 'lines+markers', line: {color: css('live'), width: 2.5}, marker: {size: 7}});
    traces.push({name: 'stalls in it', x, y: points.map(p => ms(p.stall_ns)), mode: 'lines+markers', line: {color: css('budget'), width: 2, dash: 'dot'}, marker: {symbol: 'x', size: 7}, yaxis: 'y2'});
    const bound = points.filter(p => !missing(p.bound_ns));
    traces.push({name: 'bound', x: bound.map(p => mib(p.fast_memory_bytes)), y: bound.map(p => ms(p.bound_ns)), mode: 'lines', line: {color: css('soft'), width: 1.5, dash: 'dash'}});
  }
  const rest = run.reuse.curve.filter(p => !missing(p.transfer_ns));
  traces.push({name: 'LRU\u2019s transfers, nothing hidden', x: rest.map(p => mib(p.fast_memory_bytes)), y: rest.map(p => ms(p.transfer_ns)), mode: 'lines', line: {color: css('out'), width: 1.5, dash: 'dashdot'}, yaxis: 'y2'});
  if (h.median_step_ns > 0 && !h.imported) traces.push({name: 'this run', x: [mib(h.budget_bytes)], y: [ms(h.median_step_ns)], mode: 'markers', cliponaxis: false, marker: {symbol: 'star', size: 15, color: css('stall'), line: {color: css('ink'), width: 1}}});
  for (const t of traces) { t.type = 'scatter'; t.hovertemplate = '%{y:.1f} ms'; }
  return {traces, layout: {xaxis: {title: {text: 'fast memory, MiB'}, hoverformat: '.1f', anchor: 'y2', ...scale_of(r => mib(Math.max(r.headline.budget_bytes, largest(r.reuse.curve, p => p.fast_memory_bytes))))}, yaxis: {title: {text: 'step, ms'}, domain: [0.5, 1],
      ...scale_of(r => ms(Math.max(r.headline.median_step_ns, largest(r.reuse.curve, p => p.step_ns))))},
    yaxis2: {title: {text: 'stalls, ms'}, domain: [0, 0.42], ...scale_of(r => ms(largest(r.reuse.curve, p => Math.max(p.stall_ns ?? 0, p.transfer_ns ?? 0))))}}};
}

function reuse_figure(run, width) {
  const bins = run.reuse.histogram;
  return {traces: [{type: 'bar', x: bins.map(b => '\u2265 ' + bytes(b.least_bytes)), y: bins.map(b => mib(b.bytes)), customdata: bins.map(b => b.accesses), marker: {color: css('live')},
    hovertemplate: '%{y:.1f} MiB in %{customdata} accesses<extra></extra>'}], layout: {showlegend: false, xaxis: {tickangle: -40, nticks: Math.floor(width / 40)}, yaxis: {title: {text: 'MiB accessed again'}}}};
}

section('plan', 'Plan', 'The plan, and what happened', '', (host, run) => {
  const p = run.plan;
  if (!p.known) return host.append(element('p', {}, 'The shown step ran no plan, or the recording does not say where its units lie.'));
  host.append(tiles(run, [
    ['Fetches planned', 'plan.planned_fetches', count, ['and ', figure(run, 'plan.planned_evictions', count), ' evictions, chunk by chunk']],
    ['In time', 'plan.in_time', count, 'there when wanted', 'good'], ['Late', 'plan.late', count, ['stalls for operands: ', figure(run, 'plan.operand_wait_ns', time)], p.late > 0 ? 'bad' : 'good'],
    ['Early', 'plan.early', count, ['unused for more than ', figure(run, 'plan.early_limit_ns', time)]], ['Not needed', 'plan.not_needed', count, 'the bytes had never left'],
    ['Wasted', 'plan.wasted', count, 'left again before an op used them', p.wasted > 0 ? 'bad' : 'good'],
    ['Missed', 'plan.missed', count, 'fetched, and nobody had planned it', p.missed > 0 ? 'bad' : 'good'],
    ['Evictions for room', 'plan.unplanned_evictions', count, 'nobody had planned them']]));
  const led = p.moves.filter(m => !missing(m.lead_ns)).map(m => ms(m.lead_ns));
  if (led.length > 0) {
    host.append(element('div', {class: 'card'}, element('h3', {}, 'How long before they were wanted fetched chunks arrived (left of 0: late)'), chart('Lead of planned fetches', 260, () => ({
      traces: [{type: 'histogram', x: led, nbinsx: 80, marker: {color: css('live')}, hovertemplate: '%{y} chunks, %{x} ms<extra></extra>'}],
      layout: {hovermode: 'closest', showlegend: false, xaxis: {title: {text: 'ms'}}, yaxis: {title: {text: 'chunks'}}, shapes: [{type: 'line', x0: 0, x1: 0, yref: 'paper', y0: 0, y1: 1, line: {color: css('budget'), width: 2, dash: 'dash'}}]}}))));
  }
  const rows = p.moves.map((m, i) => ({...m, order: i}));
  const box = table(rows, [
    {key: 'unit', label: 'Unit', class: 'name', format: text}, {key: 'fate', label: 'Fate', cell: row => element('span', {class: row.fate === 'late' ? 'bad' : ''}, row.fate)},
    {key: 'lead_ns', label: 'Lead', number: true, format: time}, {key: 'issue', label: 'Issue op', number: true, format: count}, {key: 'due', label: 'Due op', number: true, format: count},
    {key: 'bytes', label: 'Bytes', number: true, format: bytes}, {key: 'reason', label: 'Why', format: text}], {label: 'Planned fetches', noun: 'planned fetches, latest first'});
  const reasons = p.reasons.length > 0 ? element('ul', {class: 'reasons'}, ...p.reasons.slice(0, 20).map(reason => element('li', {}, reason))) : null;
  host.append(element('div', {class: 'card'}, reasons, element('div', {class: 'controls'}, box.counter), box));
}, {long: true});

section('recomputed', 'Recomputed', 'Recomputed instead of moved', '', (host, run) => {
  const r = run.recomputed;
  if (r.groups === 0) return host.append(element('p', {}, 'Nothing was dropped and recomputed in the shown step.'));
  host.append(tiles(run, [
    ['Recomputed', 'recomputed.bytes', bytes, ['in ', figure(run, 'recomputed.groups', count), ' groups of chunks']],
    ['Took', 'recomputed.time_ns', time, ['by ', figure(run, 'recomputed.ops', count), ' ops that ran again']],
    ['Did not travel', 'recomputed.spared_bytes', bytes, missing(r.spared_ns) ? 'out and in, at most' : ['out and in, at most: ', figure(run, 'recomputed.spared_ns', time), ' of the links']]]));
  const box = table(r.tensors, [
    {key: 'tensor', label: 'Tensor', number: true, format: count}, {key: 'name', label: 'Name', class: 'name', format: text}, {key: 'bytes', label: 'Bytes', number: true, format: bytes},
    {key: 'times', label: 'Times', number: true, format: count}, {key: 'reason', label: 'Why', format: text}], {label: 'Recomputed tensors', noun: 'tensors that were recomputed'});
  host.append(element('div', {class: 'card'}, element('div', {class: 'controls'}, box.counter), box));
}, {long: true});

section('around', 'Around it', 'Unmanaged memory, and what profiling cost', '', (host, run) => {
  host.append(tiles(run, [
    ['Process at most', 'overhead.process_bytes', bytes, 'resident, at a step\u2019s end'], ['Of it, unmanaged', 'overhead.unmanaged_bytes', bytes, 'outside of fast memory'],
    ['Profiling step', 'overhead.profiling_step_ns', time, [figure(run, 'overhead.profiling_cost', ratio), ' a steady step']], ['Warm-up step', 'overhead.warm_up_step_ns', time, 'on demand, no plan yet'],
    ['Events dropped', 'overhead.events_dropped', count, 'the recorder\u2019s ring was full', run.overhead.events_dropped > 0 ? 'bad' : 'good']]));
  if (run.followed.length > 1) host.append(element('div', {class: 'card'}, element('h3', {}, 'What steps followed'), table(run.followed.map((f, i) => ({...f, order: i})), [{key: 'phase', label: 'Phase', format: text},
    {key: 'steps', label: 'Steps', number: true, format: count}, {key: 'time_ns', label: 'Time', number: true, format: time, share: true}, {key: 'stall_ns', label: 'Of it stalls', number: true, format: time},
    {key: 'moved_bytes', label: 'Moved', number: true, format: bytes}, {key: 'faults', label: 'Faults', number: true, format: count}],
    {label: 'Steps by what they followed', path: row => (run === data.run ? 'run' : 'other') + '.followed.' + row.order})));
  host.append(element('div', {class: 'card'}, element('h3', {}, 'Made with'), made_with(run)));
  if (run.causes.length === 0) return;
  const rows = run.causes.map((c, i) => ({...c, order: i}));
  host.append(element('div', {class: 'card'}, element('h3', {}, 'Moves of all steps, by cause'), table(rows, [{key: 'verb', label: 'Move', format: text}, {key: 'cause', label: 'Cause', format: text},
    {key: 'moves', label: 'Chunks', number: true, format: count, share: true}, {key: 'bytes', label: 'Bytes', number: true, format: bytes}],
    {label: 'Moves by cause', path: row => (run === data.run ? 'run' : 'other') + '.causes.' + row.order})));
});

// Enough to make the recording again.
function made_with(run) {
  const o = run.origin, machine = [o.cpu, o.cores > 0 ? plural(o.cores, 'processor') : '', o.memory_bytes > 0 ? bytes(o.memory_bytes) : '', o.kernel].filter(part => part !== '').join(', ');
  const tiers = run.machine.tiers.map(t => t.name + (t.capacity_bytes < 2 ** 50 ? ' of ' + bytes(t.capacity_bytes) : '')).join(', ');
  const links = run.machine.links.map(l => run.machine.tiers[l.source].name + ' to ' + run.machine.tiers[l.target].name + (l.bytes_per_s > 0 ? ' ' + fixed(l.bytes_per_s / 1e9, 2) + ' GB/s' : '')).join(', ');
  const rows = [['Imported from', run.headline.imported], ['Command', o.command], ['Begun', o.started], ['vedette', o.vedette === '' ? '' : o.vedette + (o.commit === '' ? '' : ', commit ' + o.commit)], ['libtorch', o.libtorch],
    ['Machine', machine], ['Tiers', tiers], ['Links', links], ['Moves', o.mechanism]].filter(([, value]) => !missing(value) && value !== '');
  return element('dl', {class: 'made'}, ...rows.flatMap(([label, value]) => [element('dt', {}, label), element('dd', {}, value)]));
}

// --- two runs ------------------------------------------------------------------------------------------------------------

function comparison() {
  const list = [['Stays within the budget', 'fits', yes_no], ['Policy', 'policy', text], ['Budget', 'budget_bytes', bytes], ['Peak of live memory', 'peak_bytes', bytes], ['Step, median', 'median_step_ns', time],
    ['Speed, of plain', 'speed_of_plain', ratio], ['Speed, of the bound', 'speed_of_bound', ratio], ['Stalls in a step', 'stall_ns', time], ['Moved in', 'bytes_in', bytes], ['Moved out', 'bytes_out', bytes], ['Used in place', 'bytes_in_place', bytes], ['Faults', 'faults', count]];
  // Steps that differ among themselves as much as between the runs rank none of them.
  const [mine, theirs] = runs.map(r => r.headline.step_quartiles_ns), alike = runs.every(r => r.headline.steady_steps > 0) && mine[0] <= theirs[1] && theirs[0] <= mine[1];
  const change = key => {
    if (alike && ['median_step_ns', 'speed_of_plain', 'speed_of_bound'].includes(key)) return 'not told apart';
    const [a, b] = runs.map(r => r.headline[key]);
    return typeof a === 'number' && typeof b === 'number' && a > 0 ? signed(Math.round((b / a - 1) * 1000) / 1000, percent) : '';
  };
  const rows = list.map(([label, key, format]) => element('tr', {}, element('td', {}, label), ...runs.map(r => { const cell = figure(r, 'headline.' + key, format, 'td'); cell.className = 'number'; return cell; }),
    element('td', {class: 'number'}, change(key))));
  const head = ['', 'This run', 'The other', 'Change'].map((label, i) => element('th', {scope: 'col', class: i ? 'number' : '', style: 'padding:.42rem .55rem'}, label));
  return element('section', {id: 'two'}, element('h2', {}, 'Two runs'), element('div', {class: 'card'}, element('div', {class: 'scroll'}, element('table', {}, element('thead', {}, element('tr', {}, ...head)), element('tbody', {}, ...rows)))),
    beside_card(), layer_comparison(alike));
}

/*{beside}*/
// The largest changes first, each with a bar from the middle: to the left where the other run is faster.
function layer_comparison(alike) {
  const rows = data.compared.map((d, i) => ({order: i, label: d.name === '' ? '(ops without a layer)' : d.name, phase: d.phase, time: d.run.time_ns, other_time: d.other.time_ns, stall: d.run.stall_ns, other_stall: d.other.stall_ns,
    moved: d.run.moved_bytes, other_moved: d.other.moved_bytes, change_ns: d.change_ns, size: Math.abs(d.change_ns)}));
  const most = largest(rows, row => row.size) || 1;
  const bar = row => {
    const made = element('span', {class: 'difference'}, element('i', {class: row.change_ns > 0 ? 'slower' : 'faster', style: 'width:' + (50 * row.size / most).toFixed(1) + '%'}));
    return made;
  };
  const box = table(rows, [{key: 'label', label: 'Layer', class: 'name', format: text}, {key: 'phase', label: 'Phase', format: text}, {key: 'change_ns', label: 'Change', number: true, format: value => signed(value, time), title: 'of time and stall together'},
    {key: 'size', label: 'Faster | slower', cell: bar, title: 'the other run, by how much; the longest bar is ' + time(most)}, {key: 'time', label: 'Time', number: true, format: time},
    {key: 'other_time', label: 'The other', number: true, format: time}, {key: 'stall', label: 'Stall', number: true, format: time}, {key: 'other_stall', label: 'The other', number: true, format: time},
    {key: 'moved', label: 'Moved', number: true, format: bytes}, {key: 'other_moved', label: 'The other', number: true, format: bytes}],
    {label: 'Layers of both runs', noun: 'layers', sort: {key: 'size', down: true}});
  return element('div', {class: 'card'}, element('h3', {}, 'Layers of both runs, by what changed'),
    alike ? element('p', {}, 'The steps of both runs are not told apart, so that differences of layers may be chance.') : null, box);
}

// --- the page ------------------------------------------------------------------------------------------------------------

function set_theme(theme) {
  root.dataset.theme = theme;
  const button = document.getElementById('theme');
  button.setAttribute('aria-pressed', String(theme === 'dark'));
  button.textContent = theme === 'dark' ? 'Light' : 'Dark';
  for (const each of charts) if (each.drawn) each.draw(true);
}
const asked = /theme=(dark|light)/.exec(location.hash + location.search);
set_theme(asked ? asked[1] : matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light');

function heading() {
  const run = data.run;
  const made = element('section', {id: 'top'}, element('h1', {}, verdict(run)),
    element('p', {class: 'lead'}, run.headline.imported ? run.headline.program : (run.headline.program ? run.headline.program + ', ' : '') + 'policy ' + text(run.headline.policy) + '. ' +
      'Figures are of step ' + text(run.shown_step) + ' where one is shown: the median of ' + plural(run.headline.steady_steps, 'step') + ' that ran alike.'), element('div', {class: 'path'}, run.path));
  if (data.other) made.append(element('p', {class: 'lead other'}, 'Beside it: ' + (data.other.headline.program ? data.other.headline.program + ', ' : '') + 'policy ' + text(data.other.headline.policy) + '. ' + verdict(data.other)),
    element('div', {class: 'path'}, data.other.path));
  for (const each of runs) if (each.remarks.length > 0) made.append(element('ul', {class: 'remarks'}, ...each.remarks.map(remark => element('li', {}, (each === data.other ? 'The other run: ' : '') + remark))));
  return made;
}

const main = document.getElementById('main'), nav = document.getElementById('nav');
main.replaceChildren(heading(), ...(runs.length > 1 ? [comparison()] : []));
sections.forEach((each, number) => {
  const body = element('div', {class: runs.length > 1 && !each.options.stacked ? 'pair' : ''});
  const made = element('section', {id: each.id, class: each.options.long ? 'long' : '', 'aria-labelledby': each.id + '-title'}, element('h2', {id: each.id + '-title'}, each.title), each.say ? element('p', {}, each.say) : null, body);
  main.append(made);
  runs.forEach((run, at) => {
    const host = element('div', {});
    body.append(host);
    if (runs.length > 1) host.append(element('h3', {class: 'path'}, (at === 0 ? 'This run: ' : 'The other: ') + run.path));
    each.draw(host, run, at);
  });
  nav.append(element('a', {href: '#' + each.id, title: 'Key ' + (number + 1) % 10}, each.short));
});
main.append(element('footer', {}, 'What each figure means is told in docs/report.md. Everything in this page came with it; it loads nothing.'));
document.title = (data.run.headline.program || 'vedette') + ' \u2013 vedette report';

const spy = new IntersectionObserver(entries => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    for (const link of nav.children) link.hash === '#' + entry.target.id ? link.setAttribute('aria-current', 'true') : link.removeAttribute('aria-current');
  }
}, {rootMargin: '-20% 0px -70% 0px'});
for (const each of sections) spy.observe(document.getElementById(each.id));

document.getElementById('theme').addEventListener('click', () => set_theme(root.dataset.theme === 'dark' ? 'light' : 'dark'));
document.getElementById('print').addEventListener('click', () => window.print());
document.getElementById('help').addEventListener('click', () => document.getElementById('keys').showModal());
let theme_before = null;             // paper is white
window.addEventListener('beforeprint', () => {
  theme_before = root.dataset.theme;
  load_charts();
  on_paper = true;
  for (const each of charts) each.drawn = true;
  set_theme('light');
});
window.addEventListener('afterprint', () => { on_paper = false; set_theme(theme_before); });
document.addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === 't') set_theme(root.dataset.theme === 'dark' ? 'light' : 'dark');
  else if (event.key === '?') document.getElementById('keys').showModal();
  else if (event.key === '/') { event.preventDefault(); document.querySelector('.tensor-filter')?.focus(); }
  else if (/^[0-9]$/.test(event.key)) document.getElementById(sections[(Number(event.key) + 9) % 10]?.id)?.scrollIntoView();
});
requestAnimationFrame(() => setTimeout(() => {
  root.dataset.ready = String(Math.round(performance.now() - started));
  setTimeout(load_charts);
}));
})();
