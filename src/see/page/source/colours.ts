// Colours that people who see fewer of them can tell apart (after Okabe and Ito), for light and dark. A colour never
// says anything alone: there is a label or a tip for it.

export const LIGHT = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#b5a900', '#7f5fa9'];
export const DARK = ['#4aa3df', '#f0b429', '#2fc79a', '#e09bc2', '#8fd0f5', '#f07d33', '#e8dc5a', '#a98bd6'];

export interface Theme {
  dark: boolean;
  text: string;
  faint: string;
  grid: string;
  paper: string;
  hole: string;
  cached: string;
  driver: string;
  mark: string;
  palette: string[];
  other: string;
  onColour: string;
}

export function theme(dark: boolean): Theme {
  return dark
    ? { dark, text: '#e6e6e6', faint: '#9a9a9a', grid: '#3a3d42', paper: '#17191c', hole: '#2a2d32', cached: '#4b5057', driver: '#ff6b6b', mark: '#ffd166', palette: DARK, other: '#70757d', onColour: '#101214' }
    : { dark, text: '#1b1d20', faint: '#62676e', grid: '#dfe2e6', paper: '#ffffff', hole: '#eceff2', cached: '#cfd4da', driver: '#b00020', mark: '#b00020', palette: LIGHT, other: '#9aa0a6', onColour: '#ffffff' };
}

// The same name has the same colour each time.
export function hash(text: string): number {
  let value = 2166136261;
  for (let i = 0; i < text.length; ++i) value = Math.imul(value ^ text.charCodeAt(i), 16777619);
  return value >>> 0;
}

// A mix of two colours "#rrggbb".
export function mix(a: string, b: string, share: number): string {
  const part = (from: number) => {
    const x = parseInt(a.slice(from, from + 2), 16);
    const y = parseInt(b.slice(from, from + 2), 16);
    return Math.round(x + (y - x) * share).toString(16).padStart(2, '0');
  };
  return `#${part(1)}${part(3)}${part(5)}`;
}
