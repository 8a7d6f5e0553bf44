// Who holds memory, or allocated it: call stacks as a flame graph, and the holders as a table. A click goes into a
// branch; the search marks what has the text. With the keyboard: arrows go from box to box, Enter goes in,
// Backspace out.
import { bytes, count, share } from './format';
import { choice, fit, make, noTip, surface, tip } from './dom';
import { hash, mix } from './colours';
import { lowerBound, type Tree } from './data';
import { State } from './state';

const ROW = 19;
const MOST_ROWS = 40;
export type Metric = 'held' | 'bytes' | 'calls' | 'brief';
export type View = 'normal' | 'inverted' | 'library';

interface Box {
  node: number;
  x: number;
  y: number;
  width: number;
}

export class Flame {
  readonly element: HTMLElement;
  metric: Metric = 'held';
  view: View = 'normal';
  private zoomed = -1;
  private readonly trees: Record<View, Tree>;
  private values = new Float64Array(0); // by node
  private total = 0;
  private boxes: Box[] = [];
  private chosen = -1;
  private readonly canvas = make('canvas', { tabindex: '0', role: 'img', 'aria-label': 'flame graph', id: 'flame' });
  private readonly caption = make('p', { class: 'caption', id: 'flame-caption' });
  private readonly search = make('input', { type: 'search', placeholder: 'search functions, files, libraries', 'aria-label': 'search', id: 'search' });
  private readonly rows = make('tbody', {});
  private readonly table: HTMLElement;
  readonly metrics: HTMLElement;
  readonly views: HTMLElement;

  constructor(private readonly state: State) {
    const { data } = state;
    this.trees = { normal: data.tree('normal'), inverted: data.tree('inverted'), library: data.tree('library') };
    this.metrics = choice('what is counted', [['held', 'held at the moment'], ['bytes', 'allocated in the stretch'], ['calls', 'allocations'], ['brief', 'brief ones']], 'held', (value) => {
      this.metric = value as Metric;
      this.update();
    });
    this.views = choice('how stacks are put together', [['normal', 'from main'], ['inverted', 'from the allocation'], ['library', 'by library']], 'normal', (value) => {
      this.view = value as View;
      this.zoomed = -1;
      this.chosen = -1;
      this.update();
    });
    const out = make('button', { type: 'button', id: 'zoom-out' }, 'zoom out');
    out.addEventListener('click', () => this.zoom(-1));
    this.search.addEventListener('input', () => this.draw());
    this.table = make('table', { class: 'holders' }, make('thead', {}, make('tr', {}, ...['held at the moment', 'blocks', 'allocated in the stretch', 'allocations', 'brief', 'by'].map((text) => make('th', text === 'by' ? { class: 'text' } : {}, text)))), this.rows);
    this.element = make('section', { id: 'who' }, make('h2', {}, 'Who holds it, and who allocated'), make('div', { class: 'bar' }, this.metrics, this.views, this.search, out), this.caption, make('div', { class: 'box' }, this.canvas), make('div', { class: 'wide' }, this.table));
    this.canvas.addEventListener('mousemove', (event) => this.hover(event));
    this.canvas.addEventListener('mouseleave', noTip);
    this.canvas.addEventListener('click', (event) => this.click(event));
    this.canvas.addEventListener('keydown', (event) => this.key(event));
    state.listenPatiently((what) => {
      if (what.has('moment') || what.has('stretch') || what.has('kinds')) this.update();
      else this.draw();
    });
  }

  focusSearch(): void {
    this.search.focus();
    this.search.select();
  }

  // By holder, of what is chosen.
  private sums(): { held: Float64Array; blocks: Float64Array; bytes: Float64Array; calls: Float64Array; brief: Float64Array } {
    const { data, moment, from, to } = this.state;
    const holders = this.trees.normal.leaf.length;
    const out = { held: new Float64Array(holders), blocks: new Float64Array(holders), bytes: new Float64Array(holders), calls: new Float64Array(holders), brief: new Float64Array(holders) };
    const groupHolder = data.column('group.holder');
    const kinds = data.column('group.kind');
    const devices = data.column('group.device');
    const holderOf = new Int32Array(groupHolder.length);
    for (let i = 0; i < holderOf.length; ++i) holderOf[i] = this.state.isShown(kinds[i]!, devices[i]!) ? groupHolder[i]! : -1;
    const cellMoment = data.column('cell.moment');
    const group = data.column('cell.group');
    const moved = data.column('cell.bytes');
    const blocks = data.column('cell.blocks');
    const calls = data.column('cell.calls');
    const asked = data.column('cell.asked');
    const brief = data.column('cell.brief');
    const end = lowerBound(cellMoment, moment + 1);
    for (let i = 0; i < end; ++i) {
      const holder = holderOf[group[i]!]!;
      if (holder < 0) continue;
      out.held[holder]! += moved[i]!;
      out.blocks[holder]! += blocks[i]!;
    }
    // (The first moment has what happened until then.)
    const begin = from === 0 ? 0 : lowerBound(cellMoment, from + 1);
    const stop = lowerBound(cellMoment, to + 1);
    for (let i = begin; i < stop; ++i) {
      const holder = holderOf[group[i]!]!;
      if (holder < 0) continue;
      out.bytes[holder]! += asked[i]!;
      out.calls[holder]! += calls[i]!;
      out.brief[holder]! += brief[i]!;
    }
    return out;
  }

  private update(): void {
    const sums = this.sums();
    const tree = this.trees[this.view];
    const of = sums[this.metric];
    this.values = new Float64Array(tree.parent.length);
    this.total = 0;
    for (let holder = 0; holder < tree.leaf.length; ++holder) {
      if (tree.leaf[holder]! < 0) continue;
      this.values[tree.leaf[holder]!]! += of[holder]!;
      this.total += of[holder]!;
    }
    for (let i = tree.parent.length - 1; i >= 0; --i) if (tree.parent[i]! >= 0) this.values[tree.parent[i]!]! += this.values[i]!;
    document.body.dataset['view'] = this.view;
    document.body.dataset['metric'] = this.metric;
    document.body.dataset['total'] = String(this.total);
    this.fill(sums);
    this.draw();
  }

  private fill(sums: ReturnType<Flame['sums']>): void {
    const holders = [...sums.held.keys()].filter((i) => sums[this.metric][i] !== 0);
    holders.sort((a, b) => sums[this.metric][b]! - sums[this.metric][a]!);
    this.rows.replaceChildren(
      ...holders.slice(0, 12).map((i) => {
        const figures = [bytes(sums.held[i]!), count(sums.blocks[i]!), bytes(sums.bytes[i]!), count(sums.calls[i]!), share(sums.brief[i]!, sums.calls[i]!)];
        return make('tr', {}, ...figures.map((text) => make('td', {}, text)), make('td', { class: 'text' }, this.holderText(i)));
      }),
    );
    if (holders.length > 12) this.rows.append(make('tr', {}, make('td', { colspan: '6', class: 'text more' }, `and ${count(holders.length - 12)} more`)));
  }

  holderText(holder: number): string {
    return this.state.data.frameText(this.state.data.head.faces[holder] ?? -1);
  }

  // All frames of a holder, the innermost first.
  holderLines(holder: number, most = 8): string[] {
    const tree = this.trees.normal;
    const out: string[] = [];
    for (let node = tree.leaf[holder]!; node >= 0 && out.length < most; node = tree.parent[node]!) out.push(this.state.data.frameText(tree.label[node]!));
    return out;
  }

  private text(node: number): string {
    const label = this.trees[this.view].label[node]!;
    return this.view === 'library' ? this.state.data.head.libraries[label] ?? '?' : this.state.data.frameText(label);
  }
  private library(node: number): string {
    const label = this.trees[this.view].label[node]!;
    return this.view === 'library' ? this.text(node) : this.state.data.head.frames[label]?.[1] ?? '';
  }
  private figure(value: number): string {
    return this.metric === 'held' || this.metric === 'bytes' ? bytes(value) : count(value);
  }
  private matches(node: number, wanted: string): boolean {
    return wanted !== '' && `${this.text(node)} ${this.library(node)}`.toLowerCase().includes(wanted);
  }

  private draw(): void {
    const tree = this.trees[this.view];
    const { theme } = this.state;
    const path: number[] = [];
    for (let node = this.zoomed; node >= 0; node = tree.parent[node]!) path.unshift(node);
    const width = this.canvas.parentElement?.clientWidth ?? 0;
    // Which boxes: breadth first would need sorting by rows, so depth first.
    this.boxes = [];
    const whole = this.zoomed < 0 ? this.total : this.values[this.zoomed]!;
    const scale = whole > 0 ? width / whole : 0;
    path.slice(0, -1).forEach((node, i) => this.boxes.push({ node, x: 0, y: i, width }));
    const base = Math.max(0, path.length - 1);
    let deepest = base - 1;
    let hidden = 0;
    const place = (nodes: number[], x: number, row: number) => {
      for (const node of nodes) {
        const wide = this.values[node]! * scale;
        if (wide >= 0.5) {
          if (row >= MOST_ROWS + base) ++hidden;
          else {
            this.boxes.push({ node, x, y: row, width: wide });
            deepest = Math.max(deepest, row);
            place(this.childrenOf(node), x, row + 1);
          }
        }
        x += wide;
      }
    };
    place(this.zoomed < 0 ? this.childrenOf(-1) : [this.zoomed], 0, base);
    const height = Math.max(3, deepest + 1) * ROW;
    const context = surface(this.canvas, height);
    if (context === null) return;
    context.clearRect(0, 0, width, height);
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'middle';
    const wanted = this.search.value.trim().toLowerCase();
    for (const box of this.boxes) {
      const isMatch = this.matches(box.node, wanted);
      const base = theme.palette[hash(this.library(box.node)) % theme.palette.length]!;
      const shade = 0.42 + (hash(this.text(box.node)) % 100) / 420;
      const colour = wanted !== '' && !isMatch ? theme.hole : isMatch ? theme.mark : mix(base, theme.paper, shade);
      context.fillStyle = colour;
      context.fillRect(box.x, box.y * ROW, Math.max(box.width - 0.7, 0.4), ROW - 1);
      if (box.node === this.chosen) {
        context.strokeStyle = theme.text;
        context.lineWidth = 2;
        context.strokeRect(box.x + 1, box.y * ROW + 1, Math.max(box.width - 2.5, 1), ROW - 3);
      }
      if (box.width < 26) continue;
      context.fillStyle = wanted !== '' && !isMatch ? theme.faint : isMatch && !theme.dark ? '#ffffff' : isMatch ? '#101214' : theme.text;
      context.fillText(fit(context, this.text(box.node), box.width - 8), box.x + 4, box.y * ROW + ROW / 2);
    }
    if (this.total === 0) {
      context.fillStyle = theme.faint;
      context.fillText('nothing', 4, ROW / 2);
    }
    this.tell(wanted, hidden);
  }

  private childrenOf(node: number): number[] {
    const tree = this.trees[this.view];
    const out: number[] = [];
    for (let i = tree.firstChild[node + 1]!; i < tree.firstChild[node + 2]!; ++i) if (this.values[tree.children[i]!]! > 0) out.push(tree.children[i]!);
    return out.sort((a, b) => this.values[b]! - this.values[a]!);
  }

  private tell(wanted: string, hidden: number): void {
    const what = { held: `held at the moment`, bytes: 'allocated in the stretch', calls: 'allocations in the stretch', brief: `allocations in the stretch that ended before ${this.state.data.head.brief_calls} others followed` }[this.metric];
    const parts = [`${this.figure(this.total)} ${what}`];
    if (this.zoomed >= 0) parts.push(`within ${this.text(this.zoomed)}: ${this.figure(this.values[this.zoomed]!)}, ${share(this.values[this.zoomed]!, this.total)}`);
    if (wanted !== '') {
      // A match within a match counts once.
      const tree = this.trees[this.view];
      const inside = new Uint8Array(tree.parent.length);
      let sum = 0;
      let found = 0;
      for (let i = 0; i < tree.parent.length; ++i) {
        const above = tree.parent[i]! >= 0 && inside[tree.parent[i]!] === 1;
        const isMatch = this.matches(i, wanted);
        if (isMatch && this.values[i]! > 0) ++found;
        inside[i] = above || isMatch ? 1 : 0;
        if (isMatch && !above) sum += this.values[i]!;
      }
      parts.push(`"${this.search.value.trim()}": ${found === 0 ? 'not found' : `${this.figure(sum)}, ${share(sum, this.total)}`}`);
    }
    if (hidden !== 0) parts.push('deeper frames are shown after a click');
    this.caption.textContent = parts.join(' · ');
  }

  private at(event: MouseEvent): Box | undefined {
    return this.boxes.find((box) => event.offsetX >= box.x && event.offsetX < box.x + box.width && Math.floor(event.offsetY / ROW) === box.y);
  }
  private hover(event: MouseEvent): void {
    const box = this.at(event);
    if (box === undefined) return noTip();
    const frame = this.view === 'library' ? undefined : this.state.data.head.frames[this.trees[this.view].label[box.node]!];
    tip(event, [this.text(box.node), ...(frame === undefined ? [] : [frame[2] === '' ? frame[1] : `${frame[1]}: ${frame[2]}${frame[3] === 0 ? '' : `:${frame[3]}`}`]), `${this.figure(this.values[box.node]!)}, ${share(this.values[box.node]!, this.total)}`]);
  }
  private click(event: MouseEvent): void {
    const box = this.at(event);
    if (box !== undefined) this.zoom(box.node === this.zoomed ? this.trees[this.view].parent[box.node]! : box.node);
  }
  zoom(node: number): void {
    this.zoomed = node;
    this.chosen = node;
    document.body.dataset['zoomed'] = node < 0 ? '' : this.text(node);
    this.draw();
  }

  private key(event: KeyboardEvent): void {
    const now = this.boxes.find((box) => box.node === this.chosen);
    const middle = now === undefined ? 0 : now.x + now.width / 2;
    const in_row = (row: number) => this.boxes.filter((box) => box.y === row).sort((a, b) => a.x - b.x);
    const nearest = (row: number) => in_row(row).sort((a, b) => Math.abs(a.x + a.width / 2 - middle) - Math.abs(b.x + b.width / 2 - middle))[0];
    const row = now === undefined ? [] : in_row(now.y);
    const place = now === undefined ? -1 : row.indexOf(now);
    const next = { ArrowDown: nearest(now === undefined ? 0 : now.y + 1), ArrowUp: now === undefined ? undefined : nearest(now.y - 1), ArrowLeft: row[place - 1], ArrowRight: row[place + 1] }[event.key];
    if (event.key === 'Enter' && now !== undefined) this.zoom(now.node);
    else if (event.key === 'Backspace') this.zoom(this.zoomed < 0 ? -1 : this.trees[this.view].parent[this.zoomed]!);
    else if (next !== undefined) {
      this.chosen = next.node;
      this.draw();
      this.caption.textContent = `${this.text(next.node)}: ${this.figure(this.values[next.node]!)}, ${share(this.values[next.node]!, this.total)}`;
    } else if (!event.key.startsWith('Arrow')) return;
    event.preventDefault();
    event.stopPropagation();
  }
}
