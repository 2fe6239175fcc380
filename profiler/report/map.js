// The map of pages: how often each layer uses each page, and where the page lay meanwhile. Rows are bins of pages, made anew from the exact
// ranges for each zoom, down to one page a row. It is a part of page.js.

const counted_words = {
  ops: 'Counted: page tracking looked after each operator, and a page counts the operators that touched it. A page that is written counts as read where an operator of its tick takes the tensor as an input, as one does that changes a part of it.',
  layers: 'Inferred, not counted: page tracking looked once a layer, and a page that it saw counts the operators of the layer whose operand its tensor is. A recorded guard counts, unless it is told otherwise (profile: ops). A page that is written counts as read where an operator of the layer takes the tensor as an input, as one does that changes a part of it.',
  operands: 'Inferred, not counted: pages were not tracked, and an operator counts for its operands from end to end.',
  samples: 'Sampled: columns are snapshots of a monitor, named by when they began, and colour counts the samples that saw a page in use.'};

section('pages', 'Pages', 'How often each layer uses which pages',
  'Pages from top to bottom, layers from left to right, as they run, in the colour of their phase above: blue forward, yellow backward, green optimizer. Colour tells how many operators of the layer use a page, in logarithms. Drag over rows to zoom, twice click for all; click anywhere in a row, or name a tensor, to see its own pages.',
  (host, run, at) => {
  const heat = run.heat;
  if (heat.rows.length === 0) return host.append(element('p', {}, 'No page and no operand was recorded.'));
  const state = {kind: 'both', mean: 'most', order: 'first', places: false, tensor: null, from: 0, to: null};
  const readout = element('p', {class: 'readout', 'aria-live': 'polite'});
  const host_chart = chart('Accesses of pages by layer', 680, () => map_figure(run, state, host_chart.clientWidth), div => {
    for (const event of ['plotly_relayout', 'plotly_doubleclick']) div.removeAllListeners?.(event);
    div.on('plotly_doubleclick', () => { zoom(null); return false; });
    div.on('plotly_relayout', change => {
      const range = change['yaxis.range'] ?? (change['yaxis.range[0]'] === undefined ? null : [change['yaxis.range[0]'], change['yaxis.range[1]']]);
      if (range === null) return;
      const rows = state.drawn.rows, of = r => Math.max(0, Math.min(rows.length - 1, r)), little = 0.02;
      const first = of(Math.floor(Math.min(...range) + 0.5 + little)), last = of(Math.ceil(Math.max(...range) - 0.5 - little));
      look(rows[first].page, rows[last].page + rows[last].pages);
    });
  });
  host_chart.style.position = 'relative';
  point_at(run, state, host_chart, words => { readout.textContent = words; }, row => { if (state.tensor === null && tensor_of(run, row.first)) zoom(row.first); });
  const stack = element('div', {class: 'map-stack', hidden: ''});
  const all = element('button', {type: 'button', hidden: '', on: {click: () => zoom(null)}}, 'All tensors');
  const closer = element('button', {type: 'button', title: 'half as many pages', on: {click: () => step_in(0.5)}}, '+');
  const farther = element('button', {type: 'button', title: 'twice as many pages', on: {click: () => step_in(2)}}, '\u2212');
  const list = element('datalist', {id: 'tensor-names-' + at});
  const search = element('input', {type: 'search', placeholder: 'zoom to a tensor, by name', 'aria-label': 'Zoom to a tensor', list: list.id, on: {
    input: () => {
      const wanted = search.value.toLowerCase();
      const found = run.tensors.filter(t => t.name.toLowerCase().includes(wanted)).slice(0, 20);
      list.replaceChildren(...found.map(t => element('option', {value: t.name + '  #' + t.tensor})));
    },
    change: () => {
      const number = /#(\d+)$/.exec(search.value);
      const found = number ? tensor_of(run, Number(number[1])) : run.tensors.find(t => t.name === search.value);
      if (found) zoom(found.tensor);
    }}});
  const radios = (key, legend, choices) => element('fieldset', {}, element('legend', {}, legend), ...choices.map(([value, label]) => element('label', {}, Object.assign(element('input', {type: 'radio', name: key + '-' + at, value,
    on: {change: () => { state[key] = value; redraw(); }}}), {checked: state[key] === value}), ' ' + label)));
  const order = element('select', {'aria-label': 'Order of the tensors', class: 'map-order', on: {change: () => { state.order = order.value; look(0, null); }}},
    ...[['first', 'by first touch'], ['role', 'by role'], ['hotness', 'by hotness'], ['size', 'by size']].map(([value, label]) => element('option', {value}, label)));
  const places = Object.assign(element('input', {type: 'checkbox', on: {change: () => { state.places = places.checked; key.hidden = !state.places; redraw(); }}}), {disabled: heat.places.length === 0});
  const key = element('p', {class: 'map-key', hidden: ''}, ...place_words.flatMap(([name, words], i) => [element('i', {class: 'place-' + i}), ' ' + name + ': ' + words + ' ']));
  function redraw() { host_chart.redraw(); }
  function look(from, to) {
    state.from = from;
    state.to = to;
    redraw();
  }
  function step_in(factor) {
    const size = map_size(run, state), from = state.from, to = state.to ?? size, middle = (from + to) / 2, half = Math.max(1, (to - from) * factor) / 2;
    if (2 * half >= size) return look(0, null);
    const begin = Math.max(0, Math.min(size - 2 * half, middle - half));
    look(Math.floor(begin), Math.max(Math.floor(begin) + 1, Math.ceil(begin + 2 * half)));
  }
  function zoom(tensor) {
    state.tensor = tensor;
    all.hidden = tensor === null;
    readout.textContent = tensor === null ? '' : heat_title(run, tensor);
    const frames = tensor_of(run, tensor)?.stack ?? [];
    stack.hidden = frames.length === 0;
    stack.replaceChildren('Allocated by', element('ol', {}, ...frames.map(frame => element('li', {}, frame))));
    look(0, null);
  }
  run.zoom = tensor => { host_chart.scrollIntoView({block: 'center'}); zoom(tensor); search.value = tensor_name(run, tensor); };
  host.addEventListener('keydown', event => { if (event.key === 'Escape') zoom(null); });
  host.append(element('div', {class: 'card'}, element('div', {class: 'controls'}, radios('kind', 'Count', ['both', 'reads', 'writes'].map(kind => [kind, kind])),
    radios('mean', 'Row shows its', [['most', 'maximum'], ['mean', 'mean']]), order, element('label', {title: heat.places.length === 0 ? 'the recording does not say where tensors lay, or there are too many places' : ''}, places, ' where they lay'),
    closer, farther, search, list, all), key, host_chart, readout, stack),
    element('p', {class: 'map-counted'}, counted_words[heat.counted] + ' Pages of ' + bytes(heat.page_bytes) + '. ' + heat.notes.map(note => note + ' ').join('') +
      (heat.ranges_left_out > 0 ? ' ' + count(heat.ranges_left_out) + ' ranges of the most finely touched tensors are not in this file.' : '')));
}, {});

// What the pointer is over, in a tooltip beside it: by its coordinates, so that cells which nothing touched, names and the band of roles answer as
// well. A press and a release at one place is a click, which Plotly tells of coloured cells alone.
function point_at(run, state, chart, say, click) {
  const tip = element('div', {class: 'map-tip', role: 'tooltip', hidden: ''});
  const at = event => {
    const {xaxis, yaxis} = chart._fullLayout ?? {}, box = chart.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    if (!yaxis || !state.drawn || y < yaxis._offset || y > yaxis._offset + yaxis._length) return null;
    const row = Math.round(yaxis.p2d(y - yaxis._offset)), c = Math.round(xaxis.p2d(x - xaxis._offset));
    return state.drawn.rows[row] ? {row, c, x, y, width: box.width} : null;
  };
  chart.addEventListener('pointermove', event => {
    const found = event.buttons === 0 ? at(event) : null;
    tip.hidden = found === null;
    if (found === null) return;
    if (!tip.isConnected) chart.append(tip);  // Plotly empties the chart before it draws it first
    say(tip.textContent = map_words(run, state, found.row, found.c));
    tip.style.top = found.y + 16 + 'px';
    const right = found.x > found.width / 2;
    tip.style.left = right ? '' : found.x + 12 + 'px';
    tip.style.right = right ? found.width - found.x + 12 + 'px' : '';
  });
  chart.addEventListener('pointerleave', () => { tip.hidden = true; });
  let pressed = null;
  chart.addEventListener('pointerdown', event => { pressed = event.button === 0 ? at(event) : null; }, {capture: true});
  window.addEventListener('pointerup', event => {
    const found = pressed === null ? null : at(event), near = found !== null && Math.hypot(found.x - pressed.x, found.y - pressed.y) < 4;
    pressed = null;
    tip.hidden = true;
    if (near) click(state.drawn.rows[found.row]);
  });
}

const place_words = [['near', 'used, and there since it was used before'], ['fetched', 'used, and brought since it was used before'], ['dragged along', 'not used: in one chunk with what was']];
const heat_title = (run, tensor) => [tensor_of(run, tensor).name, tensor_of(run, tensor).role, bytes(tensor_of(run, tensor).bytes)].join(', ');
const heat_unit = (run, state) => run.heat.counted === 'samples' ? 'samples' : state.kind === 'both' ? 'uses' : state.kind;
const pages_of = (run, tensor) => Math.max(1, Math.ceil((tensor_of(run, tensor)?.bytes ?? 1) / run.heat.page_bytes));
const times_of = (state, reads, writes) => state.kind === 'reads' ? reads : state.kind === 'writes' ? writes : reads + writes;

// Tensors in the order that is wanted, end to end: where each begins, and how many pages there are.
function map_order(run, state) {
  const wanted = state.tensor !== null ? 'tensor' + state.tensor : state.order + state.kind;
  run.map_orders ??= {};
  if (run.map_orders[wanted]) return run.map_orders[wanted];
  let order = state.tensor !== null ? [state.tensor] : run.heat.order.slice();
  if (state.tensor === null && state.order !== 'first') {
    const uses = new Map();
    if (state.order === 'hotness') for (const [tensor, , begin, end, reads, writes] of run.heat.ranges) uses.set(tensor, (uses.get(tensor) ?? 0) + times_of(state, reads, writes) * (end - begin));
    const by = {role: t => tensor_of(run, t)?.role ?? '', size: t => -(tensor_of(run, t)?.bytes ?? 0), hotness: t => -(uses.get(t) ?? 0) / pages_of(run, t)}[state.order];
    const keys = new Map(order.map(t => [t, by(t)]));
    order.sort((a, b) => keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0);
  }
  const base = new Map();
  let total = 0;
  for (const tensor of order) { base.set(tensor, total); total += pages_of(run, tensor); }
  return run.map_orders[wanted] = {order, base, total};
}
const map_size = (run, state) => map_order(run, state).total;

// Bins of pages in view, and of each layer and bin the largest or mean count, and the place that most of its pages had.
function map_bins(run, state, most_rows) {
  const {order, base, total} = map_order(run, state), from = state.from, to = Math.min(state.to ?? total, total);
  const wide = Math.max(1, to - from), bins = Math.max(1, Math.min(wide, most_rows)), columns = run.heat.columns.length;
  const column = new Map(run.heat.columns.map((layer, i) => [layer, i]));
  const edge = i => from + Math.floor(wide * i / bins);
  const grid = () => Array.from({length: bins}, () => new Float64Array(columns));
  const sum = grid(), places = state.places ? [grid(), grid(), grid()] : null;
  // adds up by page: several ranges of one tensor and layer do not overlap, so the largest of a bin is that of a range
  function spread(tensor, layer, begin, end, put) {
    const start = base.get(tensor), c = column.get(layer);
    if (start === undefined || c === undefined) return;
    const first = Math.max(from, start + begin), last = Math.min(to, start + end);
    if (first >= last) return;
    let i = Math.min(bins - 1, Math.floor((first - from) * bins / wide));
    while (i > 0 && edge(i) > first) --i;
    while (i + 1 < bins && edge(i + 1) <= first) ++i;
    for (; i < bins && edge(i) < last; ++i) put(i, c, (Math.min(last, edge(i + 1)) - Math.max(first, edge(i))) / (edge(i + 1) - edge(i)));
  }
  for (const [tensor, layer, begin, end, reads, writes] of run.heat.ranges) {
    const times = times_of(state, reads, writes);
    if (times > 0) spread(tensor, layer, begin, end, (i, c, share) => { sum[i][c] = state.mean === 'most' ? Math.max(sum[i][c], times) : sum[i][c] + times * share; });
  }
  if (places) for (const [tensor, layer, begin, end, lay] of run.heat.places) spread(tensor, layer, begin, end, (i, c, share) => { places[lay][i][c] += share; });
  const rows = [];
  let t = 0;
  for (let i = 0; i < bins; ++i) {
    const last_page = edge(i + 1) - 1;
    while (t + 1 < order.length && base.get(order[t + 1]) <= edge(i)) ++t;
    const first = order[t];
    while (t + 1 < order.length && base.get(order[t + 1]) <= last_page) ++t;
    rows.push({page: edge(i), pages: edge(i + 1) - edge(i), first, last: order[t], begins: base.get(order[t]) >= edge(i), own: edge(i) - base.get(first)});
  }
  return {rows, z: sum, places};
}

// A band above the map tells each column's phase. Lines through the map itself would hide it where phases take turns.
const phase_colours = {forward: 'live', backward: 'out', optimizer: 'resident'};
function phase_band(marks) {
  const phased = marks.filter(mark => phase_colours[mark[2]]);
  if (phased.length < 2) return [];
  const lines = marks.length > 8 ? [] : marks.slice(1).map(mark => ({type: 'line', xref: 'x', yref: 'paper', x0: mark[0] - 0.5, x1: mark[0] - 0.5, y0: 0, y1: 1, line: {color: css('soft'), width: 1, dash: 'dot'}}));
  return [...lines, ...phased.map(mark => ({type: 'rect', xref: 'x', yref: 'paper', x0: mark[0] - 0.5, x1: mark[1] - 0.5, y0: 1.003, y1: 1.013, fillcolor: css(phase_colours[mark[2]]), line: {width: 0}}))];
}

// Runs of columns, or of rows, that are alike: [begin, end, what].
function marks_of(length, of) {
  const marks = [];
  let begin = 0;
  for (let i = 1; i <= length; ++i) {
    if (i < length && of(i) === of(begin)) continue;
    marks.push([begin, i, of(begin)]);
    begin = i;
  }
  return marks;
}

const role_colours = {weight: 'live', gradient: 'out', optimizer: 'resident', activation: 'in', workspace: 'soft', input: 'stall', constant: 'budget'};
function role_band(run, rows) {
  return marks_of(rows.length, i => tensor_of(run, rows[i].first)?.role ?? '').map(([begin, end, role]) => ({type: 'rect', xref: 'paper', yref: 'y', x0: -0.014, x1: -0.004, y0: begin - 0.5, y1: end - 0.5,
    fillcolor: css(role_colours[role] ?? 'line'), line: {width: 0}}));
}

// Names of tensors where they begin, as many as have room; else the page's number.
function map_ticks(run, state, rows, height) {
  const apart = Math.max(1, Math.ceil(13 * rows.length / height));
  const ticks = [], words = [];
  let last = -apart;
  rows.forEach((row, i) => {
    if (i - last < apart || (i > 0 && !row.begins && state.tensor === null && rows.length > 40)) return;
    last = i;
    ticks.push(i);
    words.push(state.tensor === null && (row.begins || i === 0) ? tensor_name(run, row.begins ? row.last : row.first).slice(0, 28) : count(state.tensor === null ? row.page : row.own));
  });
  return [ticks, words];
}

// Of a row and a column; beside the columns of the row alone.
function map_words(run, state, at, c) {
  const row = state.drawn.rows[at], layer = run.heat.columns[c], whole = state.tensor !== null;
  const what = whole ? heat_title(run, state.tensor) + ': ' + (row.pages > 1 ? 'from page ' : 'page ') + count(row.own)
    : (row.first === row.last && tensor_of(run, row.first) ? heat_title(run, row.first) : tensor_name(run, row.first) + ' to ' + tensor_name(run, row.last)) + ' (' + plural(row.pages, 'page') + ')';
  if (layer === undefined) return what;
  const value = state.drawn.z[at][c], lay = state.drawn.places ? place_of(state.drawn.places, at, c) : null;
  const touched = value === 0 ? 'not used' : fixed(value, Number.isInteger(value) ? 0 : 2) + ' ' + (value === 1 ? heat_unit(run, state).replace(/s$/, '') : heat_unit(run, state)) + (row.pages > 1 ? state.mean === 'most' ? ' of a page at most' : ' a page' : '');
  return what + ' in ' + layer_name(run, layer) + (layer_phase(run, layer) ? ', ' + layer_phase(run, layer) : '') + ': ' + touched + (lay === null ? '' : ', ' + place_words[lay][0]);
}

function place_of(places, row, c) {
  let best = null;
  places.forEach((grid, lay) => { if (grid[row][c] > 0 && (best === null || grid[row][c] > places[best][row][c])) best = lay; });
  return best;
}

function map_figure(run, state, width) {
  const heat = run.heat, columns = heat.columns.length, zoomed = state.tensor !== null;
  const drawn = state.drawn = map_bins(run, state, 480), rows = drawn.rows;
  const every = Math.max(1, Math.ceil(columns / Math.max(6, Math.floor((on_paper ? paper_width : width) / 42)))), shown = heat.columns.map((_, i) => i).filter(i => i % every === 0);
  const marks = marks_of(columns, i => layer_phase(run, heat.columns[i]));
  const dark = root.dataset.theme === 'dark', most = drawn.z.reduce((so_far, row) => row.reduce((a, b) => Math.max(a, b), so_far), 1);
  const least = state.mean === 'most' ? 1 : drawn.z.reduce((so_far, row) => row.reduce((a, b) => b > 0 ? Math.min(a, b) : a, so_far), most);
  const scale = dark ? [[0, '#2f6597'], [0.33, '#6f8797'], [0.66, '#b9ae6e'], [1, '#ffea46']] : [[0, '#fee8a8'], [0.25, '#c9b474'], [0.5, '#878479'], [0.75, '#4a5469'], [1, '#002051']];
  const low = Math.log10(Math.max(least, most / 1e4)), high = Math.max(Math.log10(most), low + 0.01);
  const values = [1e-4, 1e-3, 0.01, 0.1, 1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000, 1e4, 1e5].filter(v => Math.log10(v) >= low - 0.01 && Math.log10(v) <= high + 0.01);
  const traces = [{type: 'heatmap', z: drawn.z.map(row => Array.from(row, v => v > 0 ? Math.max(low, Math.log10(v)) : null)), colorscale: scale, zmin: low, zmax: high, hoverinfo: 'skip', xgap: columns < 200 ? 0.5 : 0,
    colorbar: {title: {text: heat_unit(run, state) + (run.heat.counted === 'ops' || run.heat.counted === 'samples' ? '' : ',<br>inferred') + '<br>a page', side: 'top'}, thickness: 12, outlinewidth: 0, tickmode: 'array', tickvals: values.map(Math.log10), ticktext: values.map(v => v >= 1 ? count(v) : String(v))}}];
  if (drawn.places) traces.push(places_trace(drawn, columns));
  const [ticks, words] = map_ticks(run, state, rows, 560);
  const narrow = width < 600, letters = Math.max(4, ...words.map(word => word.length));
  return {traces, layout: {hovermode: false, dragmode: 'zoom', margin: {l: narrow ? 78 : Math.min(210, 34 + 6.2 * letters), r: 10, t: zoomed ? 40 : 24, b: 40}, title: zoomed ? {text: escaped(heat_title(run, state.tensor)), font: {size: 13}} : undefined,
    xaxis: {range: [-0.5, columns - 0.5], fixedrange: true, tickmode: 'array', tickvals: shown, ticktext: shown.map(i => escaped(layer_name(run, heat.columns[i])).slice(0, 90)), tickangle: -50, showgrid: false, zeroline: false},
    yaxis: {range: [rows.length - 0.5, -0.5], tickmode: 'array', tickvals: ticks, ticktext: words.map(word => escaped(word.slice(0, narrow ? 9 : 28))), ticklabelstandoff: 10, showgrid: false, zeroline: false},
    shapes: [...phase_band(marks), ...role_band(run, rows)],
    annotations: marks.filter(mark => marks.length > 1 && mark[2] && mark[1] - mark[0] > columns / 12).map(mark => ({text: mark[2], showarrow: false, xref: 'x', yref: 'paper', x: (mark[0] + mark[1] - 1) / 2, y: 1.013, yanchor: 'bottom',
      font: {size: 11, color: css('soft')}}))}};
}

// A strip at the left of each cell, so that need and place are seen at once.
function places_trace(drawn, columns) {
  const edges = [];
  for (let c = 0; c < columns; ++c) edges.push(c - 0.5, c - 0.14);
  edges.push(columns - 0.5);
  const z = drawn.rows.map((_, row) => Array.from({length: 2 * columns}, (_, k) => k % 2 === 0 ? place_of(drawn.places, row, k / 2) : null));
  const colours = [css('resident'), css('budget'), css('stall')];
  return {type: 'heatmap', x: edges, z, zmin: 0, zmax: 2, showscale: false, hoverinfo: 'skip', colorscale: [[0, colours[0]], [0.33, colours[0]], [0.34, colours[1]], [0.66, colours[1]], [0.67, colours[2]], [1, colours[2]]]};
}
