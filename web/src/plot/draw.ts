// How a plot looks: axes, lines, known gaps as hatched bands, alarms and events as marks on the same axis. All colours are the page's tokens.
import type uPlot from 'uplot';
import { colour, type Band, type Flag, type Line } from './types';

export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// Step, usual text, and what is added where a new year or day begins.
const TIMES: (string | number | null)[][] = [
  [86_400 * 365, '{YYYY}', null, null, null, null, null, null, 1],
  [86_400 * 28, '{MMM}', '\n{YYYY}', null, null, null, null, null, 1],
  [86_400, '{D} {MMM}', '\n{YYYY}', null, null, null, null, null, 1],
  [60, '{HH}:{mm}', '\n{D} {MMM} {YYYY}', null, '\n{D} {MMM}', null, null, null, 1],
  [1, '{HH}:{mm}:{ss}', '\n{D} {MMM} {YYYY}', null, '\n{D} {MMM}', null, null, null, 1],
  [0.001, ':{ss}.{fff}', '\n{D} {MMM} {YYYY}', null, '\n{D} {MMM}', null, '\n{HH}:{mm}', null, 1],
];
const FONT = '12px system-ui, sans-serif';

export interface Extras {
  bands: () => Band[];
  flags: () => Flag[];
}

export function options(lines: Line[], size: { width: number; height: number }, zero: boolean, extras: Extras, read: (plot: uPlot) => void): uPlot.Options {
  const units = [...new Set(lines.map((line) => line.unit))];
  const axis = { stroke: () => token('--ink-2'), grid: { stroke: () => token('--line'), width: 1 }, ticks: { stroke: () => token('--line'), size: 4 }, font: FONT };
  const scales: uPlot.Scales = { x: { time: true, auto: false } };
  for (const unit of units) scales[scale(unit)] = { range: (_, low, high) => room(low, high, zero) };
  return {
    ...size,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 7 }, dataIdx: nearest },
    scales,
    axes: [
      { ...axis, values: TIMES as unknown as uPlot.Axis.Values, space: 70 },
      ...units.slice(0, 2).map((unit, i) => ({ ...axis, scale: scale(unit), side: i === 0 ? 3 : 1, size: 54, grid: i === 0 ? axis.grid : { show: false }, values: (_: uPlot, splits: number[]) => splits.map((one) => short(one)) }) as uPlot.Axis),
    ],
    series: [
      {},
      ...lines.map((line, i): uPlot.Series => ({ label: line.name, scale: scale(line.unit), stroke: () => token(colour(i)), width: 1.6, spanGaps: false, points: { show: (plot) => sparse(plot) } })),
    ],
    hooks: { drawAxes: [(plot) => bands(plot, extras.bands())], draw: [(plot) => flags(plot, extras.flags())], setCursor: [read] },
  };
}

function scale(unit: string): string {
  return unit || 'plain';
}

function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)} k`;
  return String(+value.toFixed(size < 10 ? 2 : 1));
}

/** Some room above and below; counts begin at zero. */
function room(low: number | null, high: number | null, zero: boolean): [number, number] {
  if (low == null || high == null) return [0, 1];
  // Nothing but zeros would have an axis of hundredths.
  if (zero && high <= 0) return [0, 1];
  const from = zero ? 0 : low;
  const spread = high - from || Math.abs(high) * 0.1 || 1;
  return [zero ? 0 : low - spread * 0.08, high + spread * 0.08];
}

/** Single readings are seen as points only when there is room for them. */
function sparse(plot: uPlot): boolean {
  const xs = plot.data[0];
  if (xs.length < 2) return xs.length === 1;
  const apart = (plot.valToPos(xs[xs.length - 1]!, 'x') - plot.valToPos(xs[0]!, 'x')) / (xs.length - 1);
  return apart > 14;
}

/** The reading next to the cursor: series that were put together have holes where only another has a value. */
function nearest(plot: uPlot, series: number, hovered: number): number {
  const values = plot.data[series];
  if (!values || values[hovered] != null) return hovered;
  for (let step = 1; step < 400; step++) {
    if (values[hovered - step] != null) return hovered - step;
    if (values[hovered + step] != null) return hovered + step;
  }
  return hovered;
}

function hatch(context: CanvasRenderingContext2D, line: string, ground: string): CanvasPattern | string {
  const tile = document.createElement('canvas');
  tile.width = tile.height = 8 * devicePixelRatio;
  const pen = tile.getContext('2d');
  if (!pen) return ground;
  pen.fillStyle = ground;
  pen.fillRect(0, 0, tile.width, tile.height);
  pen.strokeStyle = line;
  pen.lineWidth = devicePixelRatio;
  pen.beginPath();
  for (const shift of [-tile.width, 0, tile.width]) {
    pen.moveTo(shift, tile.height);
    pen.lineTo(shift + tile.width, 0);
  }
  pen.stroke();
  return context.createPattern(tile, 'repeat') ?? ground;
}

function bands(plot: uPlot, list: Band[]) {
  if (!list.length) return;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const fill = hatch(ctx, token('--held-fill'), token('--held-soft'));
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  for (const band of list) {
    const left = plot.valToPos(band.from, 'x', true);
    const wide = Math.max(2 * devicePixelRatio, plot.valToPos(band.to, 'x', true) - left);
    ctx.fillStyle = fill;
    ctx.fillRect(left, bbox.top, wide, bbox.height);
    const text = ctx.measureText(band.label).width;
    if (wide > text + 14 * devicePixelRatio) {
      const middle = left + wide / 2;
      ctx.fillStyle = token('--surface');
      ctx.fillRect(middle - text / 2 - 5 * devicePixelRatio, bbox.top + bbox.height - 24 * devicePixelRatio, text + 10 * devicePixelRatio, 18 * devicePixelRatio);
      ctx.fillStyle = token('--held');
      ctx.textAlign = 'center';
      ctx.fillText(band.label, middle, bbox.top + bbox.height - 11 * devicePixelRatio);
    }
  }
  ctx.restore();
}

/** With more marks than this their lines would hide the plot: only the heads stay, and a short stem. */
const MOST_LINES = 12;

function flags(plot: uPlot, list: Flag[]) {
  if (!list.length) return;
  const { ctx, bbox } = plot;
  const dot = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top - 14 * dot, bbox.width, bbox.height + 14 * dot);
  ctx.clip();
  // Heads that would lie on each other are one; alarms are drawn last and stay on top.
  const drawn = { alarm: -Infinity, event: -Infinity };
  for (const flag of [...list].sort((a, b) => (a.kind === b.kind ? a.at - b.at : a.kind === 'event' ? -1 : 1))) {
    const x = plot.valToPos(flag.at, 'x', true);
    if (x < bbox.left || x > bbox.left + bbox.width || x - drawn[flag.kind] < 9 * dot) continue;
    drawn[flag.kind] = x;
    ctx.strokeStyle = ctx.fillStyle = token(flag.kind === 'alarm' ? '--bad' : '--info');
    ctx.lineWidth = dot;
    ctx.setLineDash([3 * dot, 3 * dot]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + (list.length > MOST_LINES ? 10 * dot : bbox.height));
    ctx.stroke();
    ctx.beginPath();
    // A triangle is an alarm, a disc an event.
    if (flag.kind === 'alarm') {
      ctx.moveTo(x - 5 * dot, bbox.top - 10 * dot);
      ctx.lineTo(x + 5 * dot, bbox.top - 10 * dot);
      ctx.lineTo(x, bbox.top);
    } else ctx.arc(x, bbox.top - 5 * dot, 4 * dot, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.restore();
}
