// What is chosen, and who is told when it changes: once a frame, however often it changed. While the stretch keeps
// changing, those who can wait are told five times a second.
import { Data, lowerBound, type Column } from './data';
import { theme, type Theme } from './colours';

export type What = 'moment' | 'stretch' | 'kinds' | 'theme' | 'size';

export class State {
  moment: number;
  from = 0; // the stretch: what happened behind this moment
  to: number; // and until that one
  device = -1; // -1: all
  readonly shown: boolean[]; // by kind
  theme: Theme;
  readonly times: Column;
  readonly isDeviceKind: boolean[];
  readonly kinds: number[]; // that the trace has, in order
  private readonly listeners: ((what: Set<What>) => void)[] = [];
  private readonly patient: ((what: Set<What>) => void)[] = [];
  private changed = new Set<What>();
  private later = new Set<What>();
  private toldAt = -1;
  private toldLaterAt = -1;

  constructor(readonly data: Data, dark: boolean) {
    this.times = data.column('times');
    this.to = this.times.length - 1;
    this.moment = data.head.peak;
    this.isDeviceKind = data.head.kinds.map((kind) => !kind.host);
    this.shown = this.isDeviceKind.slice();
    this.kinds = [...new Set(data.head.series.map((one) => one.kind))].sort((a, b) => a - b);
    this.theme = theme(dark);
  }

  listen(listener: (what: Set<What>) => void): void {
    this.listeners.push(listener);
  }

  // Of one who can wait while the stretch keeps changing.
  listenPatiently(listener: (what: Set<What>) => void): void {
    this.patient.push(listener);
  }

  change(...what: What[]): void {
    if (this.changed.size === 0) requestAnimationFrame((now) => this.tell(now));
    for (const one of what) this.changed.add(one);
  }

  // `now`: the time of the frame; without it all are told at once: for printing, which cannot wait.
  tell(now?: number): void {
    const changed = this.changed;
    this.changed = new Set();
    if (changed.size === 0) return;
    for (const one of this.listeners) one(changed);
    const isWaiting = this.later.size !== 0;
    for (const one of changed) this.later.add(one);
    if (now === undefined || (!isWaiting && !changed.has('stretch'))) return this.tellLater(now ?? 0);
    this.toldAt = now;
    if (!isWaiting) requestAnimationFrame((next) => this.perhaps(next));
  }

  private perhaps(now: number): void {
    if (this.toldAt === now && now - this.toldLaterAt < 200) requestAnimationFrame((next) => this.perhaps(next));
    else this.tellLater(now);
  }

  private tellLater(now: number): void {
    const changed = this.later;
    this.later = new Set();
    this.toldLaterAt = now;
    if (changed.size !== 0) for (const one of this.patient) one(changed);
  }

  setMoment(moment: number): void {
    this.moment = Math.max(0, Math.min(this.times.length - 1, Math.round(moment)));
    if (this.moment < this.from || this.moment > this.to) this.setStretch(0, this.times.length - 1);
    this.change('moment');
  }

  setStretch(from: number, to: number): void {
    const last = this.times.length - 1;
    this.from = Math.max(0, Math.min(last, Math.round(from)));
    this.to = Math.max(this.from, Math.min(last, Math.round(to)));
    if (this.from === this.to) {
      this.from = Math.max(0, this.from - 1);
      this.to = Math.min(last, this.from + 2);
    }
    if (this.moment < this.from || this.moment > this.to) this.moment = this.highest(this.from, this.to);
    this.change('stretch', 'moment');
  }

  // Where the stretch begins, in nanoseconds since the trace began: all of it with the first event of any sort.
  begin(): number {
    return this.from === 0 ? this.data.head.first_ns : this.times[this.from]!;
  }

  // The moment that holds at a time, in nanoseconds.
  momentAt(ns: number): number {
    return Math.max(0, lowerBound(this.times, ns + 0.5) - 1);
  }

  // Kinds that the trace has differ in it.
  kindColour(kind: number): string {
    return this.theme.palette[this.kinds.indexOf(kind) % this.theme.palette.length] ?? this.theme.other;
  }

  isShown(kind: number, device: number): boolean {
    return this.shown[kind] === true && (this.device < 0 || this.device === device);
  }

  total(moment: number): number {
    let sum = 0;
    this.data.head.series.forEach((one, i) => {
      if (this.isShown(one.kind, one.device)) sum += this.data.column(`live.${i}`)[moment]!;
    });
    return sum;
  }

  highest(from: number, to: number): number {
    const totals = this.totals();
    let best = from;
    for (let i = from; i <= to; ++i) if (totals[i]! > totals[best]!) best = i;
    return best;
  }

  // Of everything that is shown, at each moment; made anew when that changes.
  private sums: { key: string; values: Float64Array } | null = null;
  totals(): Float64Array {
    const key = `${this.device}:${this.shown.map(Number).join('')}`;
    if (this.sums === null || this.sums.key !== key) {
      const values = new Float64Array(this.times.length);
      this.data.head.series.forEach((one, i) => {
        if (!this.isShown(one.kind, one.device)) return;
        const column = this.data.column(`live.${i}`);
        for (let j = 0; j < values.length; ++j) values[j]! += column[j]!;
      });
      this.sums = { key, values };
    }
    return this.sums.values;
  }
}
