// A step as it ran: lanes for operators, stalls and each link, on one clock. Below stand the figures of what is selected, and what it depends on; it is
// also in the address: #timeline/STEP/FROM-TO/KIND/NUMBER, in nanoseconds of the step. It is a part of page.js.

const lane_high = 20, lane_gap = 22, lane_top = 18;

// The link of a move, and the stream of an op, which has none but on a GPU.
const fast_name = run => run.machine.tiers[0]?.name ?? 'fast memory';
function link_of(run, move) {
  const slow = run.machine.tiers[move[8]]?.name ?? 'slow tier';
  return move[0] === 'fetch' ? slow + ' \u2192 ' + fast_name(run) : move[0] === 'drop' ? 'dropped' : fast_name(run) + ' \u2192 ' + slow;
}
const stream_of = (run, stream) => missing(stream) ? '' : ', ' + fast_name(run) + ', stream ' + count(stream);

// Lanes of a step. Each stream of a GPU has one for its operators. Moves of one link that overlap lie below each other.
function lanes_of(run, step) {
  const streams = step.ops.length === 0 ? [undefined] : [...new Set(step.ops.map(o => o[4]))].sort((a, b) => a - b);
  const ops_of = stream => step.ops.map((o, i) => ({i, from: o[2], to: o[3]})).filter(bar => step.ops[bar.i][4] === stream);
  const lanes = [...streams.map(stream => ({name: 'operators' + stream_of(run, stream), kind: 'op', rows: [ops_of(stream)], colour: i => 'live'})),
    {name: 'stalls', kind: 'stall', rows: [step.stalls.map((s, i) => ({i, from: s[2], to: s[3]}))], colour: i => step.stalls[i][1] ? 'out' : 'budget'}];
  const links = new Map();
  step.moves.forEach((m, i) => {
    const key = link_of(run, m);
    if (!links.has(key)) links.set(key, []);
    links.get(key).push({i, from: m[6], to: m[7]});
  });
  for (const [name, bars] of [...links].sort((a, b) => a[0] < b[0] ? 1 : -1)) {
    bars.sort((a, b) => a.from - b.from);
    const rows = [];
    for (const bar of bars) {
      let row = rows.find(r => r.at(-1).to <= bar.from);
      if (!row) { if (rows.length < 4) rows.push(row = []); else row = rows.reduce((a, b) => a.at(-1).to <= b.at(-1).to ? a : b); }
      row.push(bar);
    }
    lanes.push({name, kind: 'move', rows, colour: i => step.moves[i][1] === 'planned' ? (step.moves[i][0] === 'fetch' ? 'in' : 'resident') : 'stall'});
  }
  let y = lane_top;
  for (const lane of lanes) { lane.y = y; y += lane.rows.length * lane_high + lane_gap; }
  return {lanes, height: y - lane_gap + 26};
}

const time_of = (step, kind, i) => kind === 'op' ? [step.ops[i][2], step.ops[i][3]] : kind === 'stall' ? [step.stalls[i][2], step.stalls[i][3]] : [step.moves[i][6], step.moves[i][7]];
const move_name = (run, move) => move[2] >= 0 ? tensor_name(run, move[2]) : 'chunk ' + count(move[3]);
const op_name = (step, i) => i < step.ops.length ? 'op ' + count(i) + ' (' + step.ops[i][0] + ')' : 'op ' + count(i);

section('timeline', 'Timeline', 'A step as it ran',
  'Operators, stalls and each link on one clock. Drag to zoom, twice click for the whole step, click a bar for what it is; a stall leads to the move that it waited for. The address of this page names what is selected.',
  (host, run, at) => {
  const all = run.timeline.steps;
  if (all.length === 0) return host.append(element('p', {}, 'The recording has no events of a step.'));
  const state = {step: all.find(s => s.step === run.shown_step) ?? all[0], from: 0, to: 0, kind: null, number: 0};
  const canvas = element('canvas', {tabindex: 0, role: 'img', 'aria-label': 'Timeline of a step', class: 'timeline-canvas'});
  const told = element('div', {class: 'readout told', 'aria-live': 'polite'}), readout = element('p', {class: 'readout', style: 'min-height:1.4em'});
  const steps = element('select', {'aria-label': 'Step', class: 'timeline-step', on: {change: () => { choose_step(Number(steps.value)); remember(); }}}, ...all.map(s => element('option', {value: s.step}, 'step ' + count(s.step) + (s.phase ? ', ' + s.phase : '') + ', ' + time(s.time_ns))));
  const button = (label, title, act, kind) => element('button', {type: 'button', title, class: kind, on: {click: act}}, label);
  const stalls_sorted = () => state.step.stalls.map((s, i) => i).sort((a, b) => (state.step.stalls[b][3] - state.step.stalls[b][2]) - (state.step.stalls[a][3] - state.step.stalls[a][2]));
  let drawn = null, pressed = null;

  function choose_step(number) {
    state.step = all.find(s => s.step === number) ?? state.step;
    steps.value = String(state.step.step);
    state.kind = null;
    look(0, state.step.time_ns);
    tell();
  }
  function look(from, to) {
    const whole = Math.max(1, state.step.time_ns), wide = Math.min(whole, Math.max(100, to - from));
    state.from = Math.max(0, Math.min(whole - wide, from));
    state.to = state.from + wide;
    canvas.dataset.view = Math.round(state.from) + '-' + Math.round(state.to);
    draw();
  }
  function scale(factor, middle = (state.from + state.to) / 2) { look(middle - (middle - state.from) * factor, middle + (state.to - middle) * factor); }
  function select(kind, number, show = true) {
    state.kind = kind;
    state.number = number;
    if (show && kind) {
      const [from, to] = time_of(state.step, kind, number), wide = state.to - state.from;
      if (from < state.from || to > state.to || (to - from) * 200 < wide) { const half = Math.max(4 * (to - from), 2000); look(Math.max(0, from - half), to + half); }
    }
    draw();
    tell();
    remember();
  }
  function remember() {
    if (at !== 0) return;
    const where = '#timeline/' + state.step.step + '/' + Math.round(state.from) + '-' + Math.round(state.to) + (state.kind ? '/' + state.kind + '/' + state.number : '');
    history.replaceState(null, '', where);
    link.href = where;
  }
  function recall() {
    const named = /^#timeline\/(\d+)(?:\/(\d+)-(\d+))?(?:\/(op|stall|move)\/(\d+))?/.exec(location.hash);
    if (!named || at !== 0 || !all.some(s => s.step === Number(named[1]))) return false;
    choose_step(Number(named[1]));
    if (named[2] !== undefined) look(Number(named[2]), Number(named[3]));
    const number = Number(named[5]);
    if (named[4] && number < {op: state.step.ops, stall: state.step.stalls, move: state.step.moves}[named[4]].length) { state.kind = named[4]; state.number = number; draw(); tell(); }
    return true;
  }

  function draw() {
    const width = on_paper ? paper_width : canvas.parentElement?.clientWidth ?? 0;
    if (width === 0) return;
    const {lanes, height} = state.step.lanes ??= lanes_of(run, state.step), dense = window.devicePixelRatio || 1, pen = canvas.getContext('2d');
    canvas.width = Math.round(width * dense);
    canvas.height = Math.round(height * dense);
    canvas.style.height = height + 'px';
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.font = '11px ' + css('sans');
    pen.textBaseline = 'middle';
    const x = ns => (ns - state.from) / (state.to - state.from) * width, colours = {}, colour = name => colours[name] ??= css(name);
    drawn = {lanes, x, width};
    const wide = state.to - state.from, each = [1, 2, 5].flatMap(d => [2, 3, 4, 5, 6, 7, 8, 9, 10].map(e => d * 10 ** e)).sort((a, b) => a - b).find(e => e / wide * width > 90) ?? wide;
    for (let t = Math.ceil(state.from / each) * each; t <= state.to; t += each) {
      pen.fillStyle = colour('line');
      pen.fillRect(x(t), 4, 1, height - 24);
      pen.fillStyle = colour('soft');
      pen.textAlign = x(t) > width - 50 ? 'right' : 'left';
      pen.fillText(each < 1e6 ? fixed(t / 1e3, each < 1e3 ? 1 : 0) + ' \u00b5s' : fixed(t / 1e6, 0) + ' ms', x(t) + 3, height - 10);
    }
    pen.textAlign = 'left';
    for (const lane of lanes) {
      pen.fillStyle = colour('soft');
      pen.fillText(lane.name, 2, lane.y - 8);
      lane.rows.forEach((row, r) => {
        const top = lane.y + r * lane_high;
        pen.fillStyle = colour('faint');
        pen.fillRect(0, top, width, lane_high - 3);
        let filled = -1;
        for (const bar of row) {
          if (bar.to < state.from || bar.from > state.to) continue;
          const left = Math.max(-2, x(bar.from)), right = Math.min(width + 2, Math.max(left + 1, x(bar.to)));
          if (right <= filled) continue;   // a step has thousands: one a pixel is drawn
          filled = Math.ceil(right);
          pen.fillStyle = colour(lane.colour(bar.i));
          pen.fillRect(left, top, Math.max(1, right - left - (right - left > 3 ? 1 : 0)), lane_high - 3);
          if (right - left < 46) continue;
          pen.save();
          pen.beginPath();
          pen.rect(left, top, right - left - 3, lane_high);
          pen.clip();
          pen.fillStyle = colour('page');
          pen.fillText(lane.kind === 'op' ? state.step.ops[bar.i][0] : lane.kind === 'move' ? move_name(run, state.step.moves[bar.i]) : time(bar.to - bar.from), Math.max(0, left) + 4, top + 9);
          pen.restore();
        }
        const chosen = state.kind === lane.kind ? row.find(bar => bar.i === state.number) : null;
        if (chosen) { pen.strokeStyle = colour('ink'); pen.lineWidth = 2; pen.strokeRect(Math.max(1, x(chosen.from) - 1), top - 1, Math.max(3, Math.min(width - 2, x(chosen.to)) - Math.max(1, x(chosen.from)) + 1), lane_high - 1); }
      });
    }
  }

  function bar_at(event) {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    for (const lane of drawn?.lanes ?? []) {
      const row = lane.rows[Math.floor((py - lane.y) / lane_high)];
      if (py < lane.y || !row) continue;
      let best = null, nearest = 3.5;
      for (const bar of row) {
        const off = Math.max(drawn.x(bar.from) - px, px - drawn.x(bar.to), 0);
        if (off < nearest || (off === nearest && best && bar.to - bar.from < best.bar.to - best.bar.from)) { nearest = off; best = {lane, bar}; }
      }
      return best;
    }
    return null;
  }

  const go = (words, act) => element('button', {type: 'button', class: 'in-cell', on: {click: act}}, words);
  function tell() {
    told.replaceChildren();
    if (!state.kind) return;
    const step = state.step, number = state.number, chain = element('ol', {class: 'chain'}), add = (...words) => chain.append(element('li', {}, ...words));
    if (state.kind === 'stall') {
      const [op, in_allocation, from, to, move, why, remedy] = step.stalls[number];
      add(element('b', {}, time(to - from)), in_allocation ? ' of stall for room in ' : ' of stall before ', go(op_name(step, op), () => select('op', op)), ', from ' + time(from) + ' on');
      if (move >= 0) {
        add('for the ' + step.moves[move][0] + ' of ', go(move_name(run, step.moves[move]), () => select('move', move)), ', ' + bytes(step.moves[move][4]));
        if (step.moves[move][2] >= 0) add('of the tensor ', go(tensor_name(run, step.moves[move][2]), () => run.zoom?.(step.moves[move][2])), tensor_of(run, step.moves[move][2]) ? ', ' + tensor_of(run, step.moves[move][2]).role : '');
      }
      add(why);
      if (remedy !== '') add(element('b', {}, remedy));
    } else if (state.kind === 'move') {
      const [verb, cause, tensor, chunk, size, issued, from, to] = step.moves[number];
      add(element('b', {}, verb + ' of ' + move_name(run, step.moves[number])), ', ' + bytes(size) + ' in ' + time(to - from) + (to > from ? ' (' + fixed(size / (to - from), 2) + ' GB/s)' : '') + ', ' + link_of(run, step.moves[number]) + ', chunk ' + count(chunk));
      add((cause === 'planned' ? 'planned' : 'not planned: ' + cause) + '; asked for at ' + time(issued) + ', began at ' + time(from) + ', ended at ' + time(to));
      if (tensor >= 0) add('of the tensor ', go(tensor_name(run, tensor), () => run.zoom?.(tensor)));
      step.stalls.forEach((s, i) => { if (s[4] === number) add('waited for by ', go(op_name(step, s[0]) + ', ' + time(s[3] - s[2]), () => select('stall', i))); });
    } else {
      const [name, layer, from, to, stream] = step.ops[number];
      add(element('b', {}, 'op ' + count(number) + ': ' + name), ', ' + time(to - from) + ', from ' + time(from) + ' on' + stream_of(run, stream));
      if (layer >= 0) add('in the layer ', go(layer_name(run, layer), () => run.show_layer?.(layer)), ' ' + layer_phase(run, layer));
      step.stalls.forEach((s, i) => { if (s[0] === number) add('after a stall of ', go(time(s[3] - s[2]), () => select('stall', i))); });
    }
    told.append(chain);
  }

  canvas.addEventListener('pointerdown', event => { pressed = {x: event.offsetX, from: state.from, to: state.to, pan: event.shiftKey}; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener('pointermove', event => {
    if (pressed?.pan) return look(pressed.from - (event.offsetX - pressed.x) / drawn.width * (pressed.to - pressed.from), pressed.to - (event.offsetX - pressed.x) / drawn.width * (pressed.to - pressed.from));
    if (pressed && Math.abs(event.offsetX - pressed.x) > 4) { draw(); const pen = canvas.getContext('2d'); pen.fillStyle = css('focus') + '33'; pen.fillRect(Math.min(pressed.x, event.offsetX), 0, Math.abs(event.offsetX - pressed.x), canvas.clientHeight); return; }
    const found = bar_at(event);
    readout.textContent = !found ? '' : found.lane.kind === 'op' ? op_name(state.step, found.bar.i) + ', ' + time(found.bar.to - found.bar.from) : found.lane.kind === 'stall' ? 'stall before ' + op_name(state.step, state.step.stalls[found.bar.i][0]) + ', ' + time(found.bar.to - found.bar.from)
      : state.step.moves[found.bar.i][0] + ' of ' + move_name(run, state.step.moves[found.bar.i]) + ', ' + bytes(state.step.moves[found.bar.i][4]) + ', ' + time(found.bar.to - found.bar.from);
  });
  canvas.addEventListener('pointerup', event => {
    if (!pressed) return;
    const moved = event.offsetX - pressed.x, at_ns = px => state.from + px / drawn.width * (state.to - state.from);
    if (!pressed.pan && Math.abs(moved) > 4) look(at_ns(Math.min(pressed.x, event.offsetX)), at_ns(Math.max(pressed.x, event.offsetX)));
    else if (!pressed.pan) { const found = bar_at(event); select(found?.lane.kind ?? null, found?.bar.i ?? 0, false); }
    pressed = null;
    remember();
  });
  canvas.addEventListener('dblclick', () => { look(0, state.step.time_ns); remember(); });
  canvas.addEventListener('wheel', event => { if (!event.ctrlKey) return; event.preventDefault(); scale(event.deltaY > 0 ? 1.25 : 0.8, state.from + event.offsetX / drawn.width * (state.to - state.from)); }, {passive: false});
  canvas.addEventListener('keydown', event => {
    const wide = state.to - state.from, act = {ArrowLeft: () => look(state.from - wide / 4, state.to - wide / 4), ArrowRight: () => look(state.from + wide / 4, state.to + wide / 4), '+': () => scale(0.5), '-': () => scale(2)}[event.key];
    if (act) { event.preventDefault(); act(); remember(); }
  });
  const next = by => () => { const order = stalls_sorted(); if (order.length > 0) select('stall', order[(Math.max(0, state.kind === 'stall' ? order.indexOf(state.number) + by : 0) + order.length) % order.length]); };
  const link = element('a', {href: '#timeline/' + state.step.step, class: 'timeline-link'}, 'Link to this');
  const key = element('p', {class: 'lanes-key'}, ...[['live', 'operator'], ['budget', 'stall for an operand'], ['out', 'stall for room'], ['in', 'planned fetch'], ['resident', 'planned eviction'], ['stall', 'not planned']].flatMap(([name, words]) => [element('i', {style: 'background:var(--' + name + ')'}), ' ' + words + ' ']));
  host.append(element('div', {class: 'card'}, element('div', {class: 'controls'}, steps, button('+', 'closer', () => { scale(0.5); remember(); }), button('\u2212', 'farther', () => { scale(2); remember(); }),
    button('Whole step', 'all of it', () => { look(0, state.step.time_ns); remember(); }), button('Longest stall', 'the longest stall, then shorter ones', next(1), 'next-stall'), link),
    element('div', {class: 'lanes'}, canvas), key, readout, told));
  if (run.timeline.steps_left_out > 0) host.append(element('p', {}, 'Of ' + plural(run.timeline.steps_left_out, 'other step') + ' the events are not in this page; vedette report --step N brings those of step N.'));
  choose_step(state.step.step);
  charts.push({host: canvas, drawn: true, draw() { draw(); }});
  if (at === 0) {
    let seen = 0;
    new ResizeObserver(entries => { if (entries[0].contentRect.width !== seen) { seen = entries[0].contentRect.width; requestAnimationFrame(draw); } }).observe(canvas.parentElement);
    window.addEventListener('hashchange', () => { if (recall()) canvas.scrollIntoView({block: 'center'}); });
    requestAnimationFrame(() => { if (recall()) canvas.scrollIntoView({block: 'center'}); });
  } else requestAnimationFrame(draw);
}, {stacked: true});
