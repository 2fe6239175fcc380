// --- what memory costs, tensor by tensor -----------------------------------------------------------------------------------

function prices_card(run) {
  const p = run.prices, at = path => 'prices.' + path, cost = ns => missing(ns) ? '\u2013' : ns === 0 ? '0 ms' : fixed(ns / 1e6, 3) + ' ms';
  const card = element('div', {class: 'card'}, element('h3', {}, 'What memory costs, tensor by tensor'));
  if (!p.known) { card.append(element('p', {}, p.note)); return card; }
  card.append(element('p', {}, 'By the proven bound a MiB of budget less costs ', figure(run, at('ns_per_mib'), cost), ' a step at least, all through it. No plan waits less than ', figure(run, at('waiting_ns'), time),
    ...(missing(p.simulated_stall_ns) ? [] : [' a step; the simulated one waits ', figure(run, at('simulated_stall_ns'), time), ', and what is beyond the bound has no price here']), '.'));
  if (!missing(p.less_ns) && !missing(p.more_ns)) card.append(element('p', {}, 'Simulated, a step takes ', figure(run, at('less_ns'), time), ' with 10 % less memory, ', figure(run, at('simulated_ns'), time), ' as it is, and ',
    figure(run, at('more_ns'), time), ' with 10 % more.'));
  if (p.note !== '') card.append(element('p', {}, p.note.replace(' -> ', ' \u2192 ')));
  if (p.free.length > 0) card.append(element('ul', {class: 'advice'}, ...p.free.map(each => element('li', {}, each.sentence.replace(' -> ', ' \u2192 ')))));
  if (p.tensors.length === 0) return card;
  const path = (list, row) => (run === data.run ? 'run' : 'other') + '.prices.' + list + '.' + row.order;
  const dear = title => ({number: true, format: cost, title});
  const rows = p.tensors.map((t, i) => ({...t, order: i})), box = table(rows, [
    {key: 'name', label: 'Tensor', class: 'name', cell: row => element('button', {type: 'button', class: 'in-cell', on: {click: () => run.zoom?.(row.tensor)}}, row.name)}, {key: 'role', label: 'Role', format: text},
    {key: 'bytes', label: 'Bytes', number: true, format: bytes}, {key: 'gone_ns', label: 'Gone, it saves', share: true, ...dear('a step waits less by this at most, were the tensor not there'), format: time},
    {key: 'ns_per_mib', label: 'A MiB of it', ...dear('of the tensor less')}, {key: 'budget_ns_per_mib', label: 'A MiB of budget', ...dear('less, only while the tensor lives: costs at least')},
    {key: 'layer', label: 'First layer', class: 'name', format: text}], {label: 'Prices of tensors', noun: 'tensors', sort: {key: 'gone_ns', down: true}, path: row => path('tensors', row)});
  const words = {layer: 'by their first layer', role: 'by role', alike: 'alike: names that differ in numbers alone'};
  const groups = p.groups.map((g, i) => ({...g, order: i, label: g.name === '' ? '(none)' : g.name})), of_groups = table(groups, [
    {key: 'label', label: 'Group', class: 'name', format: text}, {key: 'tensors', label: 'Tensors', number: true, format: count}, {key: 'bytes', label: 'Bytes', number: true, format: bytes},
    {key: 'gone_ns', label: 'Gone, it saves', number: true, format: time, share: true, title: 'summed over its tensors: of a whole group a step saves less where other waits come to count'}],
    {label: 'Prices of groups', noun: 'groups', sort: {key: 'gone_ns', down: true}, path: row => path('groups', row)});
  const pick = element('select', {'aria-label': 'Groups', on: {change: () => of_groups.filter(row => row.by === pick.value)}}, ...Object.entries(words).map(([value, label]) => element('option', {value}, label)));
  of_groups.filter(row => row.by === 'layer');
  card.append(element('div', {class: 'controls'}, box.counter), box, element('h3', {}, 'Groups of tensors'), element('div', {class: 'controls'}, pick, of_groups.counter), of_groups);
  return card;
}
