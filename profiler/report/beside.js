// --- two runs on one axis --------------------------------------------------------------------------------------------------

function beside_card() {
  const b = data.beside, card = element('div', {class: 'card'}, element('h3', {}, 'Both steps on one axis'));
  if (b.run.length > 0 || b.other.length > 0) card.append(element('p', {}, b.why + ' Solid: this run; dashed: the other. Stalls add up from the step\u2019s begin.'), chart('Live and resident memory and stalls of both runs over one step', 460, () => beside_figure(b)));
  if (b.tensors.length === 0) { card.append(element('p', {}, 'No tensor makes a difference.')); return card; }
  const change = pair => pair[1] - pair[0];
  const rows = b.tensors.map((t, i) => ({...t, order: i, peak: change(t.peak_bytes), moved: change(t.moved_bytes), stall: change(t.stall_ns), peak_size: Math.abs(change(t.peak_bytes)),
    both: t.renamed ? 'renamed' : t.run >= 0 && t.other >= 0 ? 'both' : t.run >= 0 ? 'this run' : t.other >= 0 ? 'the other' : ''}));
  const pair = (key, format) => row => { const [x, y] = row[key]; return format(x) + ' \u2192 ' + format(y); };
  const box = table(rows, [{key: 'name', label: 'Tensor', class: 'name', format: text}, {key: 'both', label: 'Is in', format: text}, {key: 'peak', label: 'At the peak', number: true, format: value => signed(value, bytes), title: 'of the other run, less this one\u2019s'},
    {key: 'peak_bytes', label: 'from, to', cell: pair('peak_bytes', bytes)}, {key: 'moved', label: 'Moved', number: true, format: value => signed(value, bytes)}, {key: 'moved_bytes', label: 'from, to', cell: pair('moved_bytes', bytes)},
    {key: 'stall', label: 'Stalls', number: true, format: value => signed(value, time)}, {key: 'stall_ns', label: 'from, to', cell: pair('stall_ns', time)}], {label: 'Tensors that differ', noun: 'tensors', sort: {key: 'order', down: false}});
  const sums = ['peak', 'moved', 'stall'].map(key => rows.reduce((sum, row) => sum + row[key], 0));
  card.append(element('h3', {}, 'The tensors that make the difference'), element('p', {}, 'At the peak ' + signed(sums[0], bytes) + ', moved ' + signed(sums[1], bytes) + ', stalls ' + signed(sums[2], time) + ': from this run to the other. Tensors meet by name, else by role, size and the operator that allocated them.'),
    element('div', {class: 'controls'}, box.counter), box);
  return card;
}

function beside_figure(b) {
  const traces = [], names = ['this run', 'the other'], line = (list, at, label, color, which, axis, of) => ({type: 'scatter', mode: 'lines', name: label + ', ' + names[which], x: list.map(p => 100 * p[0]), y: list.map(p => of(p[at])), yaxis: axis,
    line: {color: css(color), width: which ? 1.5 : 2, dash: which ? 'dash' : 'solid', shape: 'hv'}, hovertemplate: '%{y:.1f}'});
  [b.run, b.other].forEach((list, which) => {
    traces.push(line(list, 1, 'live', 'live', which, 'y', mib));
    if (list.some(p => p[2] > 0)) traces.push(line(list, 2, 'resident', 'resident', which, 'y', mib));
    traces.push(line(list, 3, 'stalls', 'stall', which, 'y2', ms));
  });
  return {traces, layout: {xaxis: {title: {text: b.axis === 'op' ? 'operators of the step, %' : 'time of the step, %'}, range: [0, 100], anchor: 'y2', hoverformat: '.1f'},
    yaxis: {title: {text: 'MiB'}, domain: [0.42, 1], rangemode: 'tozero'}, yaxis2: {title: {text: 'ms stalled'}, domain: [0, 0.34], rangemode: 'tozero'}}};
}
