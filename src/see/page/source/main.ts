// The page: puts the parts together, and the keys that all of them share.
import { Calls, Histogram } from './panels';
import { Chart } from './chart';
import { Data } from './data';
import { Flame } from './flame';
import { SegmentMap } from './map';
import { State } from './state';
import { theme } from './colours';
import { count, duration } from './format';
import { make, noTip, press } from './dom';

const KEYS: [string, string][] = [
  ['← →', 'the moment before or after (with Shift: ten)'],
  ['+ −', 'zoom in and out around the moment'],
  ['Esc', 'everything again'],
  ['p', 'the moment of the most memory'],
  ['/', 'search'],
  ['i n l', 'stacks from the allocation, from main, by library'],
  ['d', 'dark or light'],
  ['?', 'these keys'],
];

function start(): void {
  const page = document.getElementById('page')!;
  const data = new Data(document.getElementById('data')!.textContent ?? '');
  document.getElementById('data')!.textContent = '';
  const { head } = data;
  const state = new State(data, window.matchMedia('(prefers-color-scheme: dark)').matches);

  const setTheme = (dark: boolean) => {
    state.theme = theme(dark);
    document.documentElement.dataset['theme'] = dark ? 'dark' : 'light';
    state.change('theme');
  };
  const began = new Date(head.wall_ms).toISOString().replace('T', ' ').slice(0, 19);
  const help = make('dialog', { id: 'help', 'aria-label': 'keys' }, make('h2', {}, 'Keys'), make('dl', {}, ...KEYS.flatMap(([key, text]) => [make('dt', {}, key), make('dd', {}, text)])), make('form', { method: 'dialog' }, make('button', {}, 'close')));
  const dark = make('button', { type: 'button', id: 'dark', title: 'dark or light (d)' }, 'dark / light');
  dark.addEventListener('click', () => setTheme(!state.theme.dark));
  const keys = make('button', { type: 'button', id: 'keys' }, 'keys');
  keys.addEventListener('click', () => help.showModal());
  const reset = make('button', { type: 'button', id: 'reset', title: 'Esc' }, 'all of it');
  reset.addEventListener('click', () => state.setStretch(0, state.times.length - 1));
  const peak = make('button', { type: 'button', id: 'peak', title: 'p' }, 'the peak');
  const toPeak = () => state.setMoment(state.highest(0, state.times.length - 1));
  peak.addEventListener('click', toPeak);
  const devices = make('select', { id: 'device', 'aria-label': 'device' }, make('option', { value: '-1' }, 'all devices'), ...Array.from({ length: head.devices }, (_, i) => make('option', { value: String(i) }, `device ${i}`)));
  devices.addEventListener('change', () => {
    state.device = Number(devices.value);
    state.change('kinds', 'moment', 'stretch');
  });

  const chart = new Chart(state);
  const flame = new Flame(state);
  const map = new SegmentMap(state, flame);
  const sizes = new Histogram(state, 'size', 'Sizes asked for');
  const lifetimes = new Histogram(state, 'lifetime', 'Lifetimes');
  const calls = new Calls(state, flame);

  page.replaceChildren(
    make('header', {}, make('h1', {}, head.program), make('span', { class: 'about' }, `process ${head.pid} on ${head.host}${head.rank === '' ? '' : `, rank ${head.rank}`} · ${began} UTC · ${duration(head.ns)} · ${count(head.trace_events)} events · cupool ${head.version}`), make('nav', {}, ...(head.devices > 1 ? [devices] : []), peak, reset, dark, keys)),
    make('section', { id: 'findings' }, make('h2', {}, 'What the trace shows'), make('ul', {}, ...head.sentences.map((text) => make('li', {}, ...code(text))))),
    make('section', { id: 'time' }, make('h2', {}, 'Memory over time'), make('p', { class: 'hint' }, 'Hover to name a moment, click to choose it, drag to choose a stretch; all below follows.'), chart.element),
    flame.element,
    map.element,
    make('div', { class: 'halves' }, sizes.element, lifetimes.element),
    calls.element,
    help,
  );
  document.title = `${head.program} · cupool report`;

  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    const typing = event.target instanceof HTMLInputElement && event.target.type === 'search';
    if (typing) {
      if (event.key === 'Escape') (event.target as HTMLElement).blur();
      return;
    }
    const step = event.shiftKey ? 10 : 1;
    const actions: Record<string, () => void> = {
      ArrowLeft: () => state.setMoment(state.moment - step),
      ArrowRight: () => state.setMoment(state.moment + step),
      '+': () => chart.zoom(0.6),
      '=': () => chart.zoom(0.6),
      '-': () => chart.zoom(1 / 0.6),
      Escape: () => state.setStretch(0, state.times.length - 1),
      p: toPeak,
      '/': () => flame.focusSearch(),
      i: () => press(flame.views, 'inverted'),
      n: () => press(flame.views, 'normal'),
      l: () => press(flame.views, 'library'),
      d: () => setTheme(!state.theme.dark),
      '?': () => help.showModal(),
    };
    const action = actions[event.key];
    if (action === undefined || (event.target instanceof HTMLInputElement && event.key.startsWith('Arrow'))) return;
    event.preventDefault();
    action();
  });
  document.addEventListener('scroll', noTip, { passive: true });
  let resizing = 0;
  window.addEventListener('resize', () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => state.change('size'));
  });
  window.addEventListener('beforeprint', () => {
    document.documentElement.dataset['printed'] = state.theme.dark ? 'dark' : 'light';
    setTheme(false);
    state.change('size');
    state.tell();
  });
  window.addEventListener('afterprint', () => {
    setTheme(document.documentElement.dataset['printed'] === 'dark');
    delete document.documentElement.dataset['printed'];
    state.change('size');
  });

  setTheme(state.theme.dark);
  state.change('kinds', 'moment', 'stretch', 'theme', 'size');
  state.tell();
  document.body.dataset['ready'] = String(Math.round(performance.now()));
}

// What stands between backquotes is a name.
function code(text: string): (Node | string)[] {
  return text.split('`').map((part, i) => (i % 2 === 1 ? make('code', {}, part) : part));
}

start();
