// How numbers and times look. One way each, so that two views never say the same thing differently.
const whole = new Intl.NumberFormat('en-GB', { maximumFractionDigits: 0 });

export function count(value: number | null | undefined): string {
  return value == null ? '–' : whole.format(value);
}

/** A few characters, for the picture: `9,999`, `15.3 k`, `2.4 M`. */
export function brief(value: number | null | undefined): string {
  if (value == null) return '–';
  let left = value;
  for (const unit of ['', ' k', ' M', ' G']) {
    if (Math.abs(left) < (unit ? 1_000 : 10_000) || unit === ' G') return unit ? `${left.toFixed(1)}${unit}` : whole.format(left);
    left /= 1_000;
  }
  return whole.format(value);
}

export function rate(value: number | null | undefined): string {
  if (value == null) return '–';
  if (value === 0) return '0/s';
  return value < 10 ? `${value.toFixed(1)}/s` : `${brief(Math.round(value))}/s`;
}

export function decimal(value: number | null | undefined, digits = 2): string {
  if (value == null) return '–';
  const size = Math.abs(value);
  const places = size >= 1000 ? 0 : size >= 100 ? Math.min(1, digits) : digits;
  return value.toLocaleString('en-GB', { minimumFractionDigits: 0, maximumFractionDigits: places });
}

/** `of` is the animal whose weight it is a part or a difference of: both have the same digits. */
export function weight(kg: number | null | undefined, of = kg): string {
  // A hen is weighed to the gram, a pig to a tenth of a kilogram.
  return kg == null ? '–' : `${kg.toFixed(Math.abs(of ?? kg) < 10 ? 3 : 1)} kg`;
}

export function bytes(value: number | null | undefined): string {
  if (value == null) return '–';
  let left = value;
  for (const unit of ['B', 'kB', 'MB', 'GB', 'TB']) {
    if (left < 1000 || unit === 'TB') return `${left < 10 && unit !== 'B' ? left.toFixed(1) : Math.round(left)} ${unit}`;
    left /= 1000;
  }
  return '';
}

export function percent(part: number, of = 1): string {
  if (!of) return '–';
  const value = (part / of) * 100;
  if (value > 0 && value < 0.1) return '<0.1 %';
  if (value < 100 && value > 99.9) return '>99.9 %';
  return `${value.toFixed(value < 10 && value > 0 ? 1 : 0)} %`;
}

/** A length of time in its two largest units: `4 min 12 s`, `2 d 3 h`; in its largest alone where there is no room. */
export function span(seconds: number | null | undefined, rough = false): string {
  if (seconds == null || !Number.isFinite(seconds)) return '–';
  const total = Math.max(0, Math.round(seconds));
  if (seconds < 1 && seconds > 0) return '<1 s';
  if (total < 60) return `${total} s`;
  const units: [number, string][] = [[86_400, 'd'], [3_600, 'h'], [60, 'min'], [1, 's']];
  for (let i = 0; i < units.length - 1; i++) {
    const [size, name] = units[i]!;
    if (total < size) continue;
    const [nextSize, nextName] = units[i + 1]!;
    const rest = Math.floor((total % size) / nextSize);
    return rest && !rough && total < size * 10 ? `${Math.floor(total / size)} ${name} ${rest} ${nextName}` : `${Math.floor(total / size)} ${name}`;
  }
  return '';
}

type Instant = string | number | Date | null | undefined;

function date(value: Instant): Date | null {
  if (value == null) return null;
  const made = new Date(value);
  return Number.isNaN(made.getTime()) ? null : made;
}

/** `now` is the console's, as the time is: `live.now`. */
export function ago(value: Instant, now: number): string {
  const at = date(value);
  if (!at) return '–';
  const seconds = (now - at.getTime()) / 1000;
  return seconds < 1.5 ? 'now' : `${span(seconds)} ago`;
}

const clockFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
const minuteFormat = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const dayFormat = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });
const fullDayFormat = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' });

export function clock(value: Instant): string {
  const at = date(value);
  return at ? clockFormat.format(at) : '–';
}

/** Today: the time. Before: the day too. */
export function when(value: Instant): string {
  const at = date(value);
  if (!at) return '–';
  const now = new Date();
  if (at.toDateString() === now.toDateString()) return clockFormat.format(at);
  const day = at.getFullYear() === now.getFullYear() ? dayFormat.format(at) : fullDayFormat.format(at);
  return `${day} ${minuteFormat.format(at)}`;
}

/** The whole time, with its zone, for titles and tables that are copied. */
export function exact(value: Instant): string {
  const at = date(value);
  return at ? at.toISOString().replace('T', ' ').replace('Z', ' UTC') : '–';
}

export function day(value: Instant): string {
  const at = date(value);
  return at ? dayFormat.format(at) : '–';
}

/** An id in a table: its end, since ids that were made at about the same time begin alike. */
export const shortId = (id: string): string => `…${id.slice(-8)}`;

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** `dead_letter` → `dead letter`: states and causes as people say them. */
export function words(value: string | null | undefined): string {
  return value ? value.replaceAll('_', ' ').replaceAll('-', ' ') : '–';
}
