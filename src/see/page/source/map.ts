// The pool's segments at the chosen moment, as one tape in the order of addresses that goes on in the next row:
// blocks are coloured by who allocated them, by their age or by their kind; what is free is hatched.
import { bytes, duration, share, time } from './format';
import { choice, make, noTip, surface, tip } from './dom';
import { mix } from './colours';
import { lowerBound } from './data';
import type { Flame } from './flame';
import { State } from './state';

const ROW = 18;
const GAP = 6;
const MOST_ROWS = 28;
type By = 'stack' | 'age' | 'kind';

interface Piece {
  region: number;
  begin: number; // on the tape, in bytes
}

export class SegmentMap {
  readonly element: HTMLElement;
  by: By = 'stack';
  readonly colours: HTMLElement;
  private readonly canvas = make('canvas', { role: 'img', 'aria-label': 'map of segments', id: 'map' });
  private readonly caption = make('p', { class: 'caption', id: 'map-caption' });
  private readonly legend = make('div', { class: 'legend' });
  private readonly slider = make('input', { type: 'range', min: '0', step: '1', 'aria-label': 'moment', id: 'map-slider' });
  private tape: Piece[] = [];
  private perRow = 1;
  private blocksAt: number[] = [];
  private width = 0;
  private moment = 0;

  constructor(private readonly state: State, private readonly flame: Flame) {
    this.colours = choice('what colours mean', [['stack', 'by stack'], ['age', 'by age'], ['kind', 'by kind']], 'stack', (value) => {
      this.by = value as By;
      document.body.dataset['map'] = value;
      this.draw();
    });
    const moments = state.data.column('map.moment');
    this.slider.max = String(moments.length - 1);
    this.slider.addEventListener('input', () => state.setMoment(moments[Number(this.slider.value)]!));
    this.element = make('section', { id: 'segments' }, make('h2', {}, 'The segments of the pool'), make('div', { class: 'bar' }, this.colours, make('label', { class: 'slider' }, 'through time', this.slider)), this.caption, this.legend, make('div', { class: 'box' }, this.canvas));
    this.canvas.addEventListener('mousemove', (event) => this.hover(event));
    this.canvas.addEventListener('mouseleave', noTip);
    state.listenPatiently(() => this.draw());
  }

  private draw(): void {
    const { data, theme, times } = this.state;
    const moments = data.column('map.moment');
    const regions = { address: data.column('region.address'), bytes: data.column('region.bytes'), device: data.column('region.device'), from: data.column('region.from'), to: data.column('region.to'), known: data.column('region.known') };
    this.element.hidden = regions.address.length === 0;
    if (this.element.hidden) return;
    // The last moment of the map that is not later than the chosen one.
    const at = Math.max(0, lowerBound(moments, this.state.moment + 1) - 1);
    this.moment = at;
    this.slider.value = String(at);
    const there: number[] = [];
    for (let i = 0; i < regions.address.length; ++i) if (regions.from[i]! <= at && at < regions.to[i]! && (this.state.device < 0 || regions.device[i] === this.state.device)) there.push(i);
    there.sort((a, b) => regions.device[a]! - regions.device[b]! || regions.address[a]! - regions.address[b]!);
    let all = 0;
    this.tape = there.map((region) => {
      const begin = all;
      all += regions.bytes[region]!;
      return { region, begin };
    });
    this.width = this.canvas.parentElement?.clientWidth ?? 0;
    const rows = Math.max(1, Math.min(MOST_ROWS, Math.max(4, Math.ceil(there.length / 3))));
    this.perRow = Math.max(1, Math.ceil(all / rows));
    const height = rows * (ROW + GAP);
    const context = surface(this.canvas, height);
    if (context === null) return;
    context.clearRect(0, 0, this.width, height);
    const place = new Map(this.tape.map((piece) => [piece.region, piece.begin]));
    const strip = (begin: number, end: number, paint: (x: number, y: number, width: number) => void) => {
      for (let row = Math.floor(begin / this.perRow); row * this.perRow < end; ++row) {
        const from = Math.max(begin, row * this.perRow) - row * this.perRow;
        const to = Math.min(end, (row + 1) * this.perRow) - row * this.perRow;
        paint((from / this.perRow) * this.width, row * (ROW + GAP), ((to - from) / this.perRow) * this.width);
      }
    };
    const hatch = this.hatching(context);
    for (const piece of this.tape) {
      strip(piece.begin, piece.begin + regions.bytes[piece.region]!, (x, y, wide) => {
        context.fillStyle = hatch;
        context.fillRect(x, y, wide, ROW);
      });
    }
    const block = { region: data.column('block.region'), group: data.column('block.group'), offset: data.column('block.offset'), bytes: data.column('block.bytes'), from: data.column('block.from'), to: data.column('block.to'), begin: data.column('block.begin') };
    const now = times[moments[at]!]!;
    const colour = this.colouring(now, at);
    this.blocksAt = [];
    let held = 0;
    const end = lowerBound(block.from, at + 1);
    for (let i = 0; i < end; ++i) {
      if (block.from[i]! + block.to[i]! <= at) continue;
      const begin = place.get(block.region[i]!);
      if (begin === undefined) continue;
      this.blocksAt.push(i);
      held += block.bytes[i]!;
      context.fillStyle = colour(i);
      strip(begin + block.offset[i]!, begin + block.offset[i]! + block.bytes[i]!, (x, y, wide) => context.fillRect(x, y, Math.max(wide > 2 ? wide - 0.5 : wide, 0.3), ROW));
    }
    // The edges of segments.
    context.fillStyle = theme.text;
    for (const piece of this.tape) strip(piece.begin, piece.begin + regions.bytes[piece.region]!, (x, y, wide) => {
      context.fillRect(x, y + ROW, wide, 1);
      context.fillRect(x, y, 1, ROW + 3);
    });
    const small = data.head.least_block;
    this.caption.textContent = `${there.length} segment${there.length === 1 ? '' : 's'}, ${bytes(all)}: ${bytes(held)} in ${this.blocksAt.length} block${this.blocksAt.length === 1 ? '' : 's'} (${share(held, all)})${small === 0 ? '' : `; blocks below ${bytes(small)} are not drawn`}; at ${time(now)}`;
    document.body.dataset['mapMoment'] = String(at);
  }

  private hatching(context: CanvasRenderingContext2D): CanvasPattern | string {
    const { theme } = this.state;
    const tile = document.createElement('canvas');
    tile.width = tile.height = 6;
    const paint = tile.getContext('2d');
    if (paint === null) return theme.hole;
    paint.fillStyle = theme.hole;
    paint.fillRect(0, 0, 6, 6);
    paint.strokeStyle = theme.cached;
    paint.beginPath();
    for (const shift of [-6, 0, 6]) {
      paint.moveTo(shift, 6);
      paint.lineTo(shift + 6, 0);
    }
    paint.stroke();
    return context.createPattern(tile, 'repeat') ?? theme.hole;
  }

  // The colour of a block; and what the colours mean.
  private colouring(now: number, at: number): (block: number) => string {
    const { data, theme } = this.state;
    const group = data.column('block.group');
    const begin = data.column('block.begin');
    const holder = data.column('group.holder');
    const kind = data.column('group.kind');
    const items: [string, string][] = [];
    let out: (block: number) => string;
    if (this.by === 'kind') {
      const kinds = new Set<number>();
      out = (i) => {
        kinds.add(kind[group[i]!]!);
        return this.state.kindColour(kind[group[i]!]!);
      };
      for (const one of new Set(kind)) if (data.head.kinds[one]?.pool) items.push([this.state.kindColour(one), data.head.kinds[one]!.name]);
    } else if (this.by === 'age') {
      // From young to old in five steps; each is a hundred times the age of the one before.
      const steps = [1e5, 1e7, 1e9, 1e11];
      const colours = [0, 1, 2, 3, 4].map((step) => mix(theme.dark ? '#fff3b0' : '#f6e27f', theme.dark ? '#7a2fb0' : '#3b0f70', step / 4));
      out = (i) => {
        const age = now - begin[i]!;
        const step = steps.findIndex((most) => age < most);
        return colours[step < 0 ? 4 : step]!;
      };
      ['younger than 100 µs', 'than 10 ms', 'than 1 s', 'than 100 s', 'older'].forEach((text, i) => items.push([colours[i]!, text]));
    } else {
      // The holders of the most bytes on the map have colours of their own.
      const from = data.column('block.from');
      const to = data.column('block.to');
      const size = data.column('block.bytes');
      const sums = new Map<number, number>();
      const end = lowerBound(from, at + 1);
      for (let i = 0; i < end; ++i) if (from[i]! + to[i]! > at) sums.set(holder[group[i]!]!, (sums.get(holder[group[i]!]!) ?? 0) + size[i]!);
      const top = [...sums].sort((a, b) => b[1] - a[1]).slice(0, theme.palette.length).map(([one]) => one).sort((a, b) => a - b);
      const colour = new Map(top.map((one, i) => [one, theme.palette[i]!]));
      out = (i) => colour.get(holder[group[i]!]!) ?? theme.other;
      for (const one of top) items.push([colour.get(one)!, this.flame.holderText(one)]);
      if (sums.size > top.length) items.push([theme.other, 'others']);
    }
    this.legend.replaceChildren(
      ...[...items, ['hatched', 'free'] as [string, string]].map(([paint, text]) => {
        const patch = make('i', paint === 'hatched' ? { class: 'hatched' } : {});
        if (paint !== 'hatched') patch.style.background = paint;
        return make('span', {}, patch, text);
      }),
    );
    return out;
  }

  private hover(event: MouseEvent): void {
    const { data, times } = this.state;
    const row = Math.floor(event.offsetY / (ROW + GAP));
    const at = (row + event.offsetX / Math.max(1, this.width)) * this.perRow;
    const size = data.column('region.bytes');
    const piece = this.tape.find((one) => at >= one.begin && at < one.begin + size[one.region]!);
    if (piece === undefined || event.offsetY % (ROW + GAP) >= ROW) return noTip();
    const address = data.column('region.address')[piece.region]!;
    const offset = at - piece.begin;
    const slack = this.perRow / Math.max(1, this.width);
    const blockOffset = data.column('block.offset');
    const blockBytes = data.column('block.bytes');
    const blockRegion = data.column('block.region');
    const found = this.blocksAt.find((i) => blockRegion[i] === piece.region && offset >= blockOffset[i]! - slack / 2 && offset < blockOffset[i]! + Math.max(blockBytes[i]!, slack));
    const segment = `segment 0x${address.toString(16)} of ${bytes(size[piece.region]!)}, device ${data.column('region.device')[piece.region]}${data.column('region.known')[piece.region] === 1 ? '' : ' (known by its blocks alone)'}`;
    if (found === undefined) return tip(event, ['free', segment]);
    const group = data.column('block.group')[found]!;
    const now = times[data.column('map.moment')[this.moment]!]!;
    const lines = this.flame.holderLines(data.column('group.holder')[group]!);
    tip(event, [`${bytes(blockBytes[found]!)} at 0x${(address + blockOffset[found]!).toString(16)}`, `held for ${duration(now - data.column('block.begin')[found]!)}`, ...lines, segment]);
  }
}
