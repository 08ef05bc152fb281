// The stretch of time a plot shows, in seconds since 1970, and how moving and zooming change it. Pure.
export interface Range {
  from: number;
  to: number;
}

/** From one second to ten years: nothing closer or further is of use, and the server refuses more. */
export const CLOSEST_S = 1;
export const FURTHEST_S = 10 * 366 * 86_400;

export function width(range: Range): number {
  return range.to - range.from;
}

export function move(range: Range, share: number): Range {
  const by = width(range) * share;
  return { from: range.from + by, to: range.to + by };
}

/** `factor` below 1 comes closer. `at` (0 to 1) is the place that stays where it is. */
export function zoom(range: Range, factor: number, at = 0.5): Range {
  const wanted = Math.min(FURTHEST_S, Math.max(CLOSEST_S, width(range) * factor));
  const fixed = range.from + width(range) * at;
  return { from: fixed - wanted * at, to: fixed + wanted * (1 - at) };
}

/** Two fingers: the times under them stay under them. */
export function pinch(start: Range, then: [number, number], now: [number, number]): Range {
  const apartThen = then[1] - then[0];
  const apartNow = now[1] - now[0];
  if (Math.abs(apartThen) < 0.01 || Math.abs(apartNow) < 0.01) return start;
  const wanted = Math.min(FURTHEST_S, Math.max(CLOSEST_S, width(start) * (apartThen / apartNow)));
  const fixed = start.from + width(start) * then[0];
  return { from: fixed - wanted * now[0], to: fixed + wanted * (1 - now[0]) };
}

export function last(seconds: number, now: number): Range {
  return { from: now - seconds, to: now };
}
