// What is pure is tested without a browser.
import { expect, test } from '@playwright/test';
import { bytes, brief, percent, rate, span, weight } from '../src/format';
import type { Link, Stage } from '../src/api/types';
import { trailTone } from '../src/parts/tones';
import { rows } from '../src/views/flow/order';
import { shape, verdict } from '../src/views/flow/verdict';
import { CLOSEST_S, FURTHEST_S, move, pinch, width, zoom, type Range } from '../src/plot/range';

/** A thousand ranges and shares from a fixed seed. */
function* some(): Generator<[Range, number, number]> {
  let seed = 42;
  const next = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
  for (let i = 0; i < 1000; i++) {
    const from = 1.7e9 + next() * 1e8;
    yield [{ from, to: from + 1 + next() ** 4 * 3e8 }, next(), 0.1 + next() * 9];
  }
}

test('zooming keeps the place under the pointer, and stays within its limits', () => {
  for (const [range, at, factor] of some()) {
    const zoomed = zoom(range, factor, at);
    expect(width(zoomed)).toBeGreaterThanOrEqual(CLOSEST_S * 0.999);
    expect(width(zoomed)).toBeLessThanOrEqual(FURTHEST_S * 1.001);
    const fixed = range.from + width(range) * at;
    expect(Math.abs(zoomed.from + width(zoomed) * at - fixed)).toBeLessThan(width(range) * 1e-6 + 1e-3);
  }
});

test('moving does not change the width, and moving back is where it was', () => {
  for (const [range, share] of some()) {
    const back = move(move(range, share), -share);
    expect(Math.abs(back.from - range.from)).toBeLessThan(1e-3);
    expect(Math.abs(width(move(range, share)) - width(range))).toBeLessThan(1e-3);
  }
});

test('two fingers keep the times under them', () => {
  let within = 0;
  for (const [range, share] of some()) {
    const then: [number, number] = [share * 0.4, 0.5 + share * 0.4];
    const now: [number, number] = [share * 0.3, 0.6 + share * 0.3];
    const pinched = pinch(range, then, now);
    if (width(pinched) <= CLOSEST_S * 1.01 || width(pinched) >= FURTHEST_S * 0.99) continue;
    within += 1;
    for (const i of [0, 1] as const) expect(Math.abs(pinched.from + width(pinched) * now[i] - (range.from + width(range) * then[i]))).toBeLessThan(width(range) * 1e-3 + 1e-3);
  }
  expect(within, 'ranges that no limit stopped').toBeGreaterThan(500);
});

test('numbers and times look as documented', () => {
  expect([0, 0.4, 59, 60, 252, 3_600, 5_400, 187_200, 9e6].map((one) => span(one))).toEqual(['0 s', '<1 s', '59 s', '1 min', '4 min 12 s', '1 h', '1 h 30 min', '2 d 4 h', '104 d']);
  expect(span(252, true)).toBe('4 min');
  expect(span(null)).toBe('–');
  expect([0, 0.3, 12.4, 15_300].map(rate)).toEqual(['0/s', '0.3/s', '12/s', '15.3 k/s']);
  expect([999, 1_500, 2.4e9].map(bytes)).toEqual(['999 B', '1.5 kB', '2.4 GB']);
  expect([percent(1, 2), percent(999_999, 1_000_000), percent(1, 1e6), percent(1, 0)]).toEqual(['50 %', '>99.9 %', '<0.1 %', '–']);
  expect([weight(2.4), weight(96.2), weight(2.5, 96.2), weight(-0.1, 2.4)]).toEqual(['2.400 kg', '96.2 kg', '2.5 kg', '-0.100 kg']);
  expect([9_999, 10_000, 2_400_000, 7.1e9].map(brief)).toEqual(['9,999', '10.0 k', '2.4 M', '7.1 G']);
});

test('a lane says the worst of what it has', () => {
  const link = { id: 'uplink:a', from: 'edge:a', to: 'cloud', state: 'up', rate_per_s: 3, breaker: 'closed', held: 0, drain_estimate_s: null, since: null, cuttable: true, cut: false } satisfies Link;
  const stage = { id: 'edge:a', kind: 'edge', lane: 'a', name: 'a', state: 'ok', rate_per_s: 3, held: 0, oldest_age_s: null, detail: '' } satisfies Stage;
  expect(verdict([stage], [link]).text).toBe('Moving');
  expect(verdict([stage], [{ ...link, drain_estimate_s: 1 }]).text).toBe('Moving');
  expect(verdict([stage], [{ ...link, drain_estimate_s: 40 }]).text).toBe('Draining');
  expect(verdict([stage], [{ ...link, state: 'unknown' }]).text).toBe('Not known');
  expect(verdict([{ ...stage, state: 'waiting' }], [link]).text).toBe('Data waits');
  expect(verdict([stage], [{ ...link, state: 'degraded', breaker: 'half_open' }]).text).toBe('Trying again');
  expect(verdict([{ ...stage, state: 'broken' }], [link]).text).toBe('Cannot send');
  expect(verdict([{ ...stage, state: 'broken' }], [{ ...link, state: 'down' }]).text).toBe('A link is down');
  // Cut by a person counts at once, whatever the tiers have noticed.
  expect(verdict([stage], [{ ...link, cut: true }]).text).toBe('Cut by a person');
  expect(shape({ ...link, cut: true })).toBe('down');
});

test('places are drawn in the order of their links, whatever they are', () => {
  const stage = (id: string, kind: string) => ({ id, kind, lane: 'p', name: id, state: 'ok', rate_per_s: null, held: null, oldest_age_s: null, detail: '' }) as Stage;
  const link = (from: string, to: string) => ({ id: `${from}>${to}`, from, to }) as Link;
  const drawn = (stages: Stage[], links: Link[]) => rows(stages, links).map((row) => row.map((one) => one.id).join(' '));
  const plant = [stage('historian', 'store'), stage('a', 'node'), stage('b', 'node')];
  expect(drawn(plant, [])).toEqual(['a b', 'historian']);
  expect(drawn([...plant, stage('bus', 'bus')], [link('a', 'bus'), link('b', 'bus'), link('bus', 'historian')])).toEqual(['a b', 'bus', 'historian']);
  // A kind that nobody knows, a link to a place that is not there, links that lead around.
  expect(drawn([...plant, stage('gate', 'gateway')], [])).toEqual(['a b', 'gate', 'historian']);
  expect(drawn([...plant, stage('gate', 'gateway')], [link('a', 'gate'), link('gate', 'nowhere'), link('gate', 'historian')])).toEqual(['a b', 'gate', 'historian']);
  expect(drawn([stage('a', 'node'), stage('b', 'node')], [link('a', 'b'), link('b', 'a')])).toEqual(['a b']);
});

test('a stage of an event’s way is reached, on its way, not known or bad, by its words', () => {
  const of = (...states: string[]) => states.map((state) => trailTone({ state }));
  expect(of('acked', 'stored at the edge', 'confirmed by the bus', 'yes', 'telemetry_reading', 'barn-1 seq 7: still in the node\'s spool')).toEqual(Array(6).fill('ok'));
  expect(of('not yet: pending', 'pending', 'sending, timeout')).toEqual(Array(3).fill('held'));
  expect(of('unknown to the cloud', 'in no consumer\'s table', 'the cloud was not asked')).toEqual(Array(3).fill('unknown'));
  expect(of('rejected: invalid_unit', 'dlq, invalid_unit', 'given up by media.sync: timeout', 'in quarantine: schema')).toEqual(Array(4).fill('bad'));
});
