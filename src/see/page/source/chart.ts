// Memory over time: what is held, by kind, one upon another; what the pool keeps besides; what the driver says is
// in use; below it phases and host waits. Hovering names the moment, a click chooses it, dragging chooses a
// stretch.
import uPlot from 'uplot';
import { bytes, count, duration, time } from './format';
import { make, noTip, surface, tip } from './dom';
import { State } from './state';
import { lowerBound } from './data';

const HEIGHT = 260;
const ROW = 16;
const MOST_ROWS = 4;

interface Layer {
  label: string;
  colour: string;
  values: (moment: number) => number; // of a line: 0 is not known
  stacked: boolean;
  dash?: number[];
}

export class Chart {
  readonly element = make('div', { class: 'chart', tabindex: '0', role: 'application', 'aria-label': 'memory over time' });
  private plot: uPlot | null = null;
  private readonly bands = make('canvas', { class: 'bands', role: 'img', 'aria-label': 'phases and host waits' });
  private readonly readout = make('p', { class: 'readout', id: 'readout' });
  private readonly legend = make('div', { class: 'legend' });
  private readonly hint = make('p', { class: 'hint' }, 'Each point is the highest of what its pixel stands for; zoom in to see what lies between.');
  private readonly rows: number;
  private layers: Layer[] = [];
  private drawn: number[] = []; // the moments that the plot has
  private spots: { x: number; y: number; width: number; lines: () => string[] }[] = [];
  frames = 0;

  constructor(private readonly state: State) {
    const depth = state.data.column('phase.depth');
    let deepest = -1;
    for (const one of depth) deepest = Math.max(deepest, one);
    this.rows = Math.min(MOST_ROWS, deepest + 1);
    const plotted = make('div', { class: 'plot' });
    this.element.append(this.legend, plotted, make('div', { class: 'bandbox' }, this.bands), this.hint, this.readout);
    this.bands.addEventListener('mousemove', (event) => this.hoverBands(event));
    this.bands.addEventListener('mouseleave', noTip);
    state.listen((what) => {
      if (what.has('kinds') || what.has('theme') || what.has('size')) this.rebuild(plotted);
      else if (what.has('stretch')) this.rescale();
      else if (what.has('moment')) this.plot?.redraw(false);
      this.tell();
    });
  }

  private makeLayers(): Layer[] {
    const { data, theme } = this.state;
    const { head } = data;
    const out: Layer[] = [];
    const kinds = new Map<number, number[]>();
    head.series.forEach((one, i) => {
      if (this.state.isShown(one.kind, one.device)) kinds.set(one.kind, [...(kinds.get(one.kind) ?? []), i]);
    });
    const devices = this.state.device < 0 ? [...Array(head.devices).keys()] : [this.state.device];
    for (const [kind, series] of [...kinds].sort((a, b) => a[0] - b[0])) {
      const columns = series.map((i) => data.column(`live.${i}`));
      if (columns.every((column) => column.every((value) => value === 0))) continue;
      out.push({ label: head.kinds[kind]!.name, colour: this.state.kindColour(kind), stacked: true, values: (m) => columns.reduce((sum, column) => sum + column[m]!, 0) });
    }
    const pooled = head.series.flatMap((one, i) => (head.kinds[one.kind]!.pool && devices.includes(one.device) ? [data.column(`live.${i}`)] : []));
    const reserved = devices.map((device) => data.column(`reserved.${device}`));
    const shownPool = head.kinds.some((kind, i) => kind.pool && this.state.shown[i]);
    if (shownPool && reserved.some((column) => column.some((value) => value !== 0)))
      out.push({ label: 'kept by the pool, free', colour: theme.cached, stacked: true, values: (m) => Math.max(0, reserved.reduce((sum, column) => sum + column[m]!, 0) - pooled.reduce((sum, column) => sum + column[m]!, 0)) });
    const known = devices.filter((device) => head.totals[device] !== 0);
    if (known.length !== 0)
      out.push({ label: 'in use on the device, says the driver', colour: theme.driver, stacked: false, dash: [5, 3], values: (m) => known.reduce((sum, device) => sum + data.column(`used.${device}`)[m]!, 0) });
    return out;
  }

  // Of each column of pixels the moment of the most: what is drawn of a stretch that has more moments than pixels.
  private choose(from: number, to: number, width: number): number[] {
    const { times } = this.state;
    const first = Math.max(0, from - 1);
    const last = Math.min(times.length - 1, to + 1);
    if (last - first < 2 * width) return Array.from({ length: last - first + 1 }, (_, i) => first + i);
    const totals = this.state.totals();
    const out: number[] = [];
    const step = (times[to]! - times[from]!) / width || 1;
    let at = from;
    for (let pixel = 1; at <= to; ++pixel) {
      const until = times[from]! + pixel * step;
      let high = at;
      let end = at;
      for (; end <= to && (times[end]! <= until || pixel >= width); ++end) if (totals[end]! > totals[high]!) high = end;
      if (end !== at) out.push(high);
      at = end;
    }
    if (out[0] !== first) out.unshift(first);
    if (out[out.length - 1] !== last) out.push(last);
    return out;
  }

  private table(width: number): uPlot.AlignedData {
    const { from, to, times } = this.state;
    this.drawn = this.choose(from, to, width);
    this.hint.hidden = this.drawn.length >= to - from;
    const xs = this.drawn.map((m) => times[m]!);
    const sums = new Float64Array(this.drawn.length);
    const stacked: number[][] = [];
    const lines: (number | null)[][] = [];
    for (const layer of this.layers) {
      if (layer.stacked) stacked.push(this.drawn.map((m, i) => (sums[i]! += layer.values(m))));
      else lines.push(this.drawn.map((m) => layer.values(m) || null));
    }
    // Before the first event there was nothing.
    if (this.drawn[0] === 0) {
      xs.unshift(this.state.begin());
      for (const values of stacked) values.unshift(0);
      for (const values of lines) values.unshift(null);
    }
    // (The highest first: each covers what is behind it.)
    return [xs, ...stacked.reverse(), ...lines];
  }

  private rebuild(parent: HTMLElement): void {
    this.plot?.destroy();
    this.layers = this.makeLayers();
    this.makeLegend();
    const { theme, times } = this.state;
    const width = parent.clientWidth;
    if (width === 0) return;
    const stepped = uPlot.paths.stepped!({ align: 1 });
    const series = [...this.layers.filter((layer) => layer.stacked).reverse(), ...this.layers.filter((layer) => !layer.stacked)];
    const axis = { stroke: theme.text, grid: { stroke: theme.grid, width: 1 }, ticks: { stroke: theme.grid, width: 1 }, font: '12px system-ui, sans-serif' };
    this.plot = new uPlot(
      {
        width,
        height: HEIGHT,
        legend: { show: false },
        padding: [10, 16, 0, 0],
        cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
        select: { show: true, left: 0, top: 0, width: 0, height: 0 },
        scales: { x: { time: false, range: () => [this.state.begin(), Math.max(times[this.state.to]!, this.state.begin() + 1)] }, y: { range: (_u, _low, high) => [0, Math.max(1, high * 1.04)] } },
        axes: [
          { ...axis, space: 90, values: (_u, splits) => splits.map((ns) => time(ns, splits.length > 1 ? splits[1]! - splits[0]! : 1)) },
          { ...axis, size: 76, splits: (_u, _i, _low, high) => ticks(high), values: (_u, splits) => splits.map((value) => bytes(value, 2)) },
        ],
        series: [{}, ...series.map((layer) => ({ label: layer.label, paths: stepped, points: { show: false }, ...(layer.stacked ? { fill: layer.colour, width: 0 } : { stroke: layer.colour, width: 1.5, dash: layer.dash ?? [] }) }))],
        hooks: {
          setSelect: [(u) => this.selected(u)],
          setCursor: [(u) => this.hovered(u)],
          draw: [(u) => this.drawMarks(u)],
        },
      },
      this.table(width),
      parent,
    );
    const over = this.plot.over;
    over.id = 'over';
    over.addEventListener('click', (event) => {
      if (this.dragged) return;
      this.state.setMoment(this.state.momentAt(this.plot!.posToVal(event.offsetX, 'x')));
    });
    over.addEventListener('dblclick', () => this.state.setStretch(0, times.length - 1));
    over.addEventListener('mouseleave', noTip);
    over.addEventListener('wheel', (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.7 : 1 / 0.7, this.plot!.posToVal(event.offsetX, 'x'));
    }, { passive: false });
  }

  // Around a place in time, or around the chosen moment.
  zoom(factor: number, around = this.state.times[this.state.moment]!): void {
    const { times, to } = this.state;
    const begin = around - (around - this.state.begin()) * factor;
    const end = around + (times[to]! - around) * factor;
    this.state.setStretch(lowerBound(times, begin), lowerBound(times, end));
  }

  private rescale(): void {
    if (this.plot === null) return;
    this.plot.setData(this.table(this.plot.width), true);
    ++this.frames;
  }

  private dragged = false;
  private selected(u: uPlot): void {
    const { left, width } = u.select;
    this.dragged = width > 3;
    if (!this.dragged) return;
    const begin = u.posToVal(left, 'x');
    const end = u.posToVal(left + width, 'x');
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.state.setStretch(this.state.momentAt(begin), lowerBound(this.state.times, end));
    setTimeout(() => (this.dragged = false), 0);
  }

  private hovered(u: uPlot): void {
    const left = u.cursor.left ?? -1;
    if (left < 0) return noTip();
    const moment = this.state.momentAt(u.posToVal(left, 'x'));
    const box = u.over.getBoundingClientRect();
    tip({ clientX: box.left + left, clientY: box.top + (u.cursor.top ?? 0) }, this.lines(moment));
  }

  private lines(moment: number): string[] {
    const { times, data } = this.state;
    const parts = this.layers.filter((layer) => layer.stacked || layer.values(moment) !== 0).map((layer) => `${layer.label}: ${bytes(layer.values(moment))}`);
    const phase = this.phaseAt(times[moment]!);
    return [`${time(times[moment]!)} · event ${count(data.column('events')[moment]!)}`, ...parts.reverse(), ...(phase === '' ? [] : [`in ${phase}`])];
  }

  private phaseAt(ns: number): string {
    const { data } = this.state;
    const begin = data.column('phase.begin');
    const length = data.column('phase.ns');
    const depth = data.column('phase.depth');
    const name = data.column('phase.name');
    let best = -1;
    for (let i = 0; i < begin.length && begin[i]! <= ns; ++i) if (begin[i]! + length[i]! >= ns && (best < 0 || depth[i]! >= depth[best]!)) best = i;
    return best < 0 ? '' : data.head.phases[name[best]!] ?? '';
  }

  private tell(): void {
    const { times, from, to, moment, data } = this.state;
    const total = this.state.totals()[moment]!;
    const events = data.column('events');
    document.body.dataset['moment'] = String(moment);
    document.body.dataset['from'] = String(from);
    document.body.dataset['to'] = String(to);
    const peak = moment === this.state.highest(0, times.length - 1) ? ', the most of all' : '';
    this.readout.replaceChildren(
      make('span', {}, 'Moment: ', make('b', {}, time(times[moment]!)), ` (${bytes(total)} held${peak})`),
      make('span', {}, 'Stretch: ', make('b', {}, `${time(this.state.begin())} to ${time(times[to]!)}`), ` (${duration(times[to]! - this.state.begin())}, ${count(events[to]! - (from === 0 ? 0 : events[from]!))} allocations and frees)`),
    );
  }

  private makeLegend(): void {
    const { head } = this.state.data;
    const { theme } = this.state;
    const items: HTMLElement[] = [];
    for (const kind of this.state.kinds) {
      const box = make('input', { type: 'checkbox' });
      box.checked = this.state.shown[kind] === true;
      box.addEventListener('change', () => {
        this.state.shown[kind] = box.checked;
        this.state.change('kinds', 'moment', 'stretch');
      });
      const patch = make('i', {});
      patch.style.background = this.state.kindColour(kind);
      items.push(make('label', {}, box, patch, head.kinds[kind]!.name + (head.kinds[kind]!.host ? ' (host memory)' : '')));
    }
    for (const layer of this.layers) {
      if (layer.stacked && layer.colour !== theme.cached) continue;
      const patch = make('i', layer.stacked ? {} : { class: 'line' });
      patch.style.background = layer.stacked ? layer.colour : `repeating-linear-gradient(90deg, ${layer.colour} 0 5px, transparent 5px 8px)`;
      items.push(make('span', {}, patch, layer.label));
    }
    this.legend.replaceChildren(...items);
  }

  // The chosen moment in the plot, and the bands below it.
  private drawMarks(u: uPlot): void {
    const { theme, times, moment } = this.state;
    const ratio = window.devicePixelRatio || 1;
    const x = u.valToPos(times[moment]!, 'x', true);
    const context = u.ctx;
    context.save();
    context.strokeStyle = theme.mark;
    context.lineWidth = 2 * ratio;
    context.setLineDash([]);
    context.beginPath();
    context.moveTo(x, u.bbox.top);
    context.lineTo(x, u.bbox.top + u.bbox.height);
    context.stroke();
    context.restore();
    this.drawBands(u);
  }

  private drawBands(u: uPlot): void {
    const { data, theme, times } = this.state;
    const waits = data.column('wait.begin').length !== 0;
    const height = (this.rows + (waits ? 1 : 0)) * (ROW + 2);
    this.spots = [];
    this.bands.parentElement!.hidden = height === 0;
    if (height === 0) return;
    const context = surface(this.bands, height);
    if (context === null) return;
    const ratio = window.devicePixelRatio || 1;
    const left = u.bbox.left / ratio;
    const width = u.bbox.width / ratio;
    const begins = this.state.begin();
    const x = (ns: number) => left + ((ns - begins) / Math.max(1, times[this.state.to]! - begins)) * width;
    context.clearRect(0, 0, this.bands.width, height);
    context.font = '11px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const put = (begin: number, ns: number, row: number, colour: string, name: string, lines: () => string[], ends: Float64Array) => {
      const a = Math.max(left, x(begin));
      const b = Math.min(left + width, x(begin + ns));
      if (b < left || a > left + width) return;
      // (What is narrower than a pixel is drawn once for each pixel.)
      if (b < ends[row]! + 0.5 && b - a < 1) return;
      ends[row] = b;
      const wide = Math.max(1, b - a);
      const y = row * (ROW + 2) + 1;
      context.fillStyle = colour;
      context.fillRect(a, y, wide > 3 ? wide - 0.5 : wide, ROW);
      if (wide > 30) {
        context.fillStyle = theme.onColour;
        context.fillText(cut(context, name, wide - 8), a + 4, y + ROW / 2 + 0.5);
      }
      this.spots.push({ x: a, y, width: wide, lines });
    };
    const ends = new Float64Array(this.rows + 1).fill(-1);
    const phase = { begin: data.column('phase.begin'), ns: data.column('phase.ns'), depth: data.column('phase.depth'), name: data.column('phase.name'), thread: data.column('phase.thread') };
    for (let i = 0; i < phase.begin.length; ++i) {
      const row = phase.depth[i]!;
      if (row >= this.rows) continue;
      const name = data.head.phases[phase.name[i]!] ?? '';
      put(phase.begin[i]!, phase.ns[i]!, row, theme.palette[phase.name[i]! % theme.palette.length]!, name, () => [`phase ${name}`, `${duration(phase.ns[i]!)} from ${time(phase.begin[i]!)}, thread ${data.head.threads[phase.thread[i]!]}`], ends);
    }
    const wait = { begin: data.column('wait.begin'), ns: data.column('wait.ns'), call: data.column('wait.call'), cause: data.column('wait.cause'), thread: data.column('wait.thread') };
    for (let i = 0; i < wait.begin.length; ++i) {
      const call = data.head.call_names[wait.call[i]!] ?? 'the pool';
      put(wait.begin[i]!, wait.ns[i]!, this.rows, theme.driver, call, () => [`${call} (${data.head.causes[wait.cause[i]!] ?? ''})`, `${duration(wait.ns[i]!)} from ${time(wait.begin[i]!)}, thread ${data.head.threads[wait.thread[i]!]}`], ends);
    }
    context.fillStyle = theme.faint;
    context.textAlign = 'right';
    if (this.rows !== 0) context.fillText('phases', left - 6, ROW / 2 + 1);
    if (waits) context.fillText('host waits', left - 6, this.rows * (ROW + 2) + ROW / 2 + 1);
    context.textAlign = 'left';
  }

  private hoverBands(event: MouseEvent): void {
    const found = this.spots.filter((spot) => event.offsetX >= spot.x - 1 && event.offsetX <= spot.x + spot.width + 1 && event.offsetY >= spot.y && event.offsetY < spot.y + ROW).pop();
    if (found === undefined) noTip();
    else tip(event, found.lines());
  }
}

function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  const most = Math.floor(width / 5.5);
  if (text.length > most) text = most < 2 ? '' : `${text.slice(0, most - 1)}…`;
  return context.measureText(text).width <= width ? text : '';
}

// Round numbers of bytes, up to about six.
function ticks(most: number): number[] {
  if (!(most > 0)) return [0];
  let step = 2 ** Math.floor(Math.log2(most / 4));
  if (most / step > 7) step *= 2;
  const out: number[] = [];
  for (let at = 0; at <= most; at += step) out.push(at);
  return out;
}
