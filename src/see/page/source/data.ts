// The data of the page, as src/see/page.cpp wrote it: a head in JSON that names columns of varints. Decoded once.

export interface Kind {
  name: string;
  host: boolean;
  pool: boolean;
}

export interface Head {
  program: string;
  pid: number;
  host: string;
  rank: string;
  version: string;
  wall_ms: number;
  trace_events: number;
  ns: number; // of the trace; all times are counted from its beginning
  first_ns: number; // of its first event
  devices: number;
  totals: number[];
  peaks: number[];
  peak: number;
  brief_calls: number;
  least_block: number;
  sentences: string[];
  phases: string[];
  phase_count: number;
  wait_count: number;
  threads: number[];
  libraries: string[];
  kinds: Kind[];
  series: { device: number; kind: number }[];
  frames: [string, string, string, number][];
  faces: number[]; // by holder: the frame that stands for it
  calls: [string, string, number | null][];
  causes: string[];
  call_names: string[];
  columns: { name: string; at: number; count: number; form: number }[];
}

export type Column = Float64Array;

export interface Tree {
  parent: Int32Array; // -1: a root
  label: Int32Array;
  leaf: Int32Array; // by holder; -1: none
  children: Int32Array; // all nodes, those of one parent together
  firstChild: Int32Array; // by node + 1, into children; the root of all is 0
  depth: Int32Array;
}

// Numbers may be as large as 64 bits: above 2^53 they are rounded.
function decode(bytes: Uint8Array, at: number, count: number, form: number): Column {
  const out = new Float64Array(count);
  let last = 0;
  for (let i = 0; i < count; ++i) {
    let byte = bytes[at++]!;
    let value = byte & 0x7f;
    if (byte >= 0x80) {
      let scale = 128;
      do {
        byte = bytes[at++]!;
        value += (byte & 0x7f) * scale;
        scale *= 128;
      } while (byte >= 0x80);
    }
    if (form !== 0) value = value % 2 === 0 ? value / 2 : -(value + 1) / 2;
    if (form === 2) value = last += value;
    out[i] = value;
  }
  return out;
}

function bytesOf(text: string): Uint8Array {
  const binary = atob(text.trim());
  const out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; ++i) out[i] = binary.charCodeAt(i);
  return out;
}

export class Data {
  readonly head: Head;
  private readonly bytes: Uint8Array;
  private readonly start: number;
  private readonly columns = new Map<string, { at: number; count: number; form: number }>();
  private readonly decoded = new Map<string, Column>();

  constructor(text: string) {
    this.bytes = bytesOf(text);
    const size = new DataView(this.bytes.buffer).getUint32(0, true);
    this.head = JSON.parse(new TextDecoder().decode(this.bytes.subarray(4, 4 + size))) as Head;
    this.start = 4 + size;
    for (const one of this.head.columns) this.columns.set(one.name, one);
  }

  column(name: string): Column {
    let out = this.decoded.get(name);
    if (out === undefined) {
      const where = this.columns.get(name);
      out = where === undefined ? new Float64Array(0) : decode(this.bytes, this.start + where.at, where.count, where.form);
      this.decoded.set(name, out);
    }
    return out;
  }

  tree(name: string): Tree {
    const minusOne = (column: Column) => Int32Array.from(column, (value) => value - 1);
    const parent = minusOne(this.column(`${name}.parent`));
    const label = Int32Array.from(this.column(`${name}.label`));
    const leaf = minusOne(this.column(`${name}.leaf`));
    const count = parent.length;
    const firstChild = new Int32Array(count + 2);
    const depth = new Int32Array(count);
    for (let i = 0; i < count; ++i) {
      ++firstChild[parent[i]! + 2]!;
      depth[i] = parent[i]! < 0 ? 0 : depth[parent[i]!]! + 1;
    }
    for (let i = 1; i < count + 2; ++i) firstChild[i]! += firstChild[i - 1]!;
    const next = firstChild.slice();
    const children = new Int32Array(count);
    for (let i = 0; i < count; ++i) children[next[parent[i]! + 1]!++] = i;
    return { parent, label, leaf, children, firstChild, depth };
  }

  frameText(frame: number): string {
    const one = this.head.frames[frame];
    if (one === undefined) return '?';
    const [name, , file, line] = one;
    if (file === '') return name;
    const short = file.slice(file.lastIndexOf('/') + 1);
    return `${name} (${short}${line === 0 ? '' : `:${line}`})`;
  }
}

// The first place in a sorted column whose value is not below.
export function lowerBound(column: ArrayLike<number>, value: number): number {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (column[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}
