// What follows the stretch: sizes and lifetimes as histograms, and calls in which the host waits, or that ask the
// driver, as a table.
import { bytes, count, duration, share } from './format';
import { choice, make, svg } from './dom';
import { lowerBound } from './data';
import { State } from './state';
import type { Flame } from './flame';

const STILL_HELD = 64;
const WIDTH = 560;
const HEIGHT = 170;

export class Histogram {
  readonly element: HTMLElement;
  private readonly drawing = svg('svg', { viewBox: `-26 0 ${WIDTH + 52} ${HEIGHT + 24}`, role: 'img' });
  private readonly caption = make('p', { class: 'caption' });
  private by: 'count' | 'bytes' = 'count';

  constructor(private readonly state: State, private readonly name: 'size' | 'lifetime', title: string) {
    this.drawing.setAttribute('aria-label', title);
    this.element = make('section', { class: 'half', id: `${name}s` }, make('h2', {}, title), make('div', { class: 'bar' }, choice('what is counted', [['count', 'allocations'], ['bytes', 'bytes']], 'count', (value) => {
      this.by = value as 'count' | 'bytes';
      this.draw();
    })), this.caption, this.drawing);
    state.listenPatiently((what) => {
      if (what.has('stretch') || what.has('theme')) this.draw();
    });
  }

  private label(bucket: number): string {
    if (bucket === STILL_HELD) return 'kept';
    return this.name === 'size' ? bytes(2 ** bucket) : duration(bucket === 0 ? 0 : 2 ** bucket);
  }

  private draw(): void {
    const { data, from, to } = this.state;
    const moment = data.column(`${this.name}.moment`);
    const bucket = data.column(`${this.name}.bucket`);
    const values = data.column(`${this.name}.${this.by}`);
    const counts = data.column(`${this.name}.count`);
    const sums = new Float64Array(STILL_HELD + 1);
    let all = 0;
    let calls = 0;
    const end = lowerBound(moment, to + 1);
    for (let i = from === 0 ? 0 : lowerBound(moment, from + 1); i < end; ++i) {
      sums[bucket[i]!]! += values[i]!;
      all += values[i]!;
      calls += counts[i]!;
    }
    let first = sums.findIndex((value, i) => value !== 0 && i !== STILL_HELD);
    let last = STILL_HELD - 1;
    while (last > first && sums[last] === 0) --last;
    if (first < 0) [first, last] = [0, 0];
    const shown = Array.from({ length: last - first + 1 }, (_, i) => first + i);
    if (sums[STILL_HELD] !== 0) shown.push(STILL_HELD);
    const most = Math.max(1, ...shown.map((one) => sums[one]!));
    const wide = WIDTH / Math.max(8, shown.length);
    const every = Math.ceil(shown.length / 9);
    const figure = (value: number) => (this.by === 'count' ? count(value) : bytes(value));
    this.drawing.replaceChildren(
      ...shown.flatMap((one, i) => {
        const high = (sums[one]! / most) * (HEIGHT - 16);
        const range = one === STILL_HELD ? 'still held when the trace ended' : `${this.label(one)} to ${this.label(one + 1)}`;
        const bar = svg('rect', { x: i * wide + 1, y: HEIGHT - high, width: Math.max(1, wide - 2), height: Math.max(sums[one] === 0 ? 0 : 1, high), class: one === STILL_HELD ? 'kept' : 'bar' }, svg('title', {}, `${range}: ${figure(sums[one]!)}, ${share(sums[one]!, all)}`));
        const parts = [bar];
        const beforeKept = shown[shown.length - 1] === STILL_HELD && shown.length - 1 - i < every;
        if ((i % every === 0 && !beforeKept) || one === STILL_HELD) parts.push(svg('text', { x: i * wide + wide / 2, y: HEIGHT + 15, class: 'label' }, this.label(one)));
        if (sums[one] === most && all !== 0) parts.push(svg('text', { x: Math.min(Math.max(i * wide + wide / 2, 30), WIDTH - 30), y: HEIGHT - high - 4, class: 'label' }, figure(most)));
        return parts;
      }),
      svg('line', { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT, class: 'axis' }),
    );
    this.caption.textContent = `${count(calls)} allocations began in the stretch`;
  }
}

export class Calls {
  readonly element: HTMLElement;
  private readonly rows = make('tbody', {});
  private readonly caption = make('p', { class: 'caption', id: 'calls-caption' });
  private by: 'ns' | 'count' | 'most' = 'ns';

  constructor(private readonly state: State, private readonly flame: Flame) {
    const head = (text: string, by: 'ns' | 'count' | 'most') => {
      const button = make('button', { type: 'button' }, text);
      button.addEventListener('click', () => {
        this.by = by;
        this.draw();
      });
      return make('th', {}, button);
    };
    const table = make('table', {}, make('thead', {}, make('tr', {}, head('together', 'ns'), head('calls', 'count'), head('longest', 'most'), make('th', { class: 'text' }, 'call'), make('th', { class: 'text' }, 'for'), make('th', { class: 'text' }, 'by'))), this.rows);
    this.element = make('section', { id: 'calls' }, make('h2', {}, 'Host waits and calls of the driver'), this.caption, make('div', { class: 'wide' }, table));
    state.listenPatiently((what) => {
      if (what.has('stretch')) this.draw();
    });
  }

  private draw(): void {
    const { data, from, to, times } = this.state;
    const moment = data.column('call.moment');
    const row = data.column('call.row');
    const all = data.head.calls.map((_, i) => ({ row: i, count: 0, ns: 0, most: 0 }));
    const end = lowerBound(moment, to + 1);
    for (let i = from === 0 ? 0 : lowerBound(moment, from + 1); i < end; ++i) {
      const one = all[row[i]!]!;
      one.count += data.column('call.count')[i]!;
      one.ns += data.column('call.ns')[i]!;
      one.most = Math.max(one.most, data.column('call.most')[i]!);
    }
    const shown = all.filter((one) => one.count !== 0).sort((a, b) => b[this.by] - a[this.by]);
    this.rows.replaceChildren(
      ...shown.slice(0, 40).map((one) => {
        const [what, why, holder] = data.head.calls[one.row]!;
        const by = holder === null ? '' : this.flame.holderText(holder);
        const lines = holder === null ? [] : this.flame.holderLines(holder);
        return make('tr', {}, ...[duration(one.ns), count(one.count), duration(one.most)].map((text) => make('td', {}, text)), make('td', { class: 'text' }, what), make('td', { class: 'text' }, why), make('td', { class: 'text', title: lines.join('\n') }, by === what ? '' : by));
      }),
    );
    if (shown.length > 40) this.rows.append(make('tr', {}, make('td', { colspan: '6', class: 'text more' }, `and ${count(shown.length - 40)} more`)));
    const sum = shown.reduce((before, one) => before + one.ns, 0);
    this.caption.textContent = shown.length === 0 ? 'None in the stretch.' : `${duration(sum)} of all threads together, in a stretch of ${duration(times[to]! - this.state.begin())}. Calls are told that wait by what they are, and those that took 20 µs and more.`;
  }
}
