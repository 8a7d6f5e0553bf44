// Figures as people read them. Bytes in powers of 1024, with their unit.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// `most`: digits behind the point.
export function bytes(value: number, most = 1): string {
  const sign = value < 0 ? '−' : '';
  let rest = Math.abs(value);
  let unit = 0;
  while (rest >= 1023.95 && unit < UNITS.length - 1) {
    rest /= 1024;
    ++unit;
  }
  const digits = unit === 0 || rest >= 100 ? 0 : most;
  return `${sign}${rest.toFixed(digits).replace(/\.(\d*[1-9])?0*$/, (_all, kept) => (kept === undefined ? '' : `.${kept}`))} ${UNITS[unit]}`;
}

export function count(value: number): string {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ',');
}

// Nanoseconds, as precisely as `step` of them asks for.
export function time(ns: number, step = 10 ** Math.floor(Math.log10(Math.max(1, Math.abs(ns))) - 3)): string {
  if (ns === 0) return '0 s';
  const [unit, scale] = Math.abs(ns) >= 1e9 ? ['s', 1e9] : Math.abs(ns) >= 1e6 ? ['ms', 1e6] : Math.abs(ns) >= 1e3 ? ['µs', 1e3] : ['ns', 1];
  // So many digits that two figures that are a step apart differ, and round steps are shown as they are.
  const each = Math.max(step, 1e-9) / (scale as number);
  let digits = Math.max(0, Math.min(6, Math.ceil(-Math.log10(each))));
  if (digits < 6 && Math.abs(each * 10 ** digits - Math.round(each * 10 ** digits)) > 1e-6 && each > 1e-3) ++digits;
  return `${(ns / (scale as number)).toFixed(scale === 1 ? 0 : digits)} ${unit}`;
}

export function duration(ns: number): string {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  return `${(ns / 1e9).toFixed(2)} s`;
}

export function share(part: number, whole: number): string {
  if (whole === 0 || part === 0) return '0 %';
  const percent = (100 * part) / whole;
  if (percent < 0.1) return '< 0.1 %';
  if (part < whole && percent > 99.9) return '> 99.9 %';
  return `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}
