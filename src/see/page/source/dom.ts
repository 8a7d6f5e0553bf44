// Elements of the page. Text from a trace is only ever set as text.

type Child = Node | string;

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Record<string, string> = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const out = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) out.setAttribute(name, value);
  out.append(...children);
  return out;
}

export function svg(tag: string, attributes: Record<string, string | number>, ...children: Child[]): SVGElement {
  const out = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) out.setAttribute(name, String(value));
  out.append(...children);
  return out;
}

// A canvas as wide as its parent, sharp on every screen. Null: it has no size yet.
export function surface(canvas: HTMLCanvasElement, height: number): CanvasRenderingContext2D | null {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.parentElement?.clientWidth ?? 0;
  if (width === 0) return null;
  const wide = Math.round(width * ratio);
  const high = Math.round(height * ratio);
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// One box that says what is under the pointer.
const box = make('div', { class: 'tip', role: 'status', hidden: '' });

export function tip(event: { clientX: number; clientY: number }, lines: string[]): void {
  if (!box.isConnected) document.body.append(box);
  box.replaceChildren(...lines.map((line, i) => make('div', i === 0 ? { class: 'first' } : {}, line)));
  box.hidden = false;
  const width = box.offsetWidth;
  const height = box.offsetHeight;
  const x = event.clientX + 14 + width > window.innerWidth ? event.clientX - width - 10 : event.clientX + 14;
  const y = event.clientY + 14 + height > window.innerHeight ? event.clientY - height - 10 : event.clientY + 14;
  box.style.left = `${Math.max(4, x)}px`;
  box.style.top = `${Math.max(4, y)}px`;
}

export function noTip(): void {
  box.hidden = true;
}

// As much of a text as fits, with an ellipsis.
export function fit(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low === 0 ? '' : `${text.slice(0, low)}…`;
}

// A row of buttons of which one is pressed.
export function choice(label: string, options: [string, string][], chosen: string, change: (value: string) => void): HTMLElement {
  const buttons = options.map(([value, text]) => {
    const button = make('button', { type: 'button', 'data-value': value, 'aria-pressed': String(value === chosen) }, text);
    button.addEventListener('click', () => {
      for (const one of buttons) one.setAttribute('aria-pressed', String(one === button));
      change(value);
    });
    return button;
  });
  return make('div', { class: 'choice', role: 'group', 'aria-label': label }, ...buttons);
}

export function press(group: HTMLElement, value: string): void {
  for (const one of group.querySelectorAll('button')) {
    if (one.dataset['value'] === value) one.click();
  }
}
