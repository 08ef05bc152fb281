// What a plot is given. Times are seconds since 1970.
export interface Line {
  id: string;
  name: string;
  unit: string;
  xs: number[];
  /** null: nothing is known here, and the line is interrupted. */
  ys: (number | null)[];
}

export interface Band {
  from: number;
  to: number;
  label: string;
  /** `known`: a declared gap. `open`: missing, and nobody has said why. */
  kind: 'known' | 'open';
}

export interface Flag {
  at: number;
  label: string;
  kind: 'alarm' | 'event';
}

export const COLOURS = 6;

/** The token of the nth line. */
export function colour(n: number): string {
  return `--series-${(n % COLOURS) + 1}`;
}
