// Series that can be computed at any moment, so that months of readings need no memory. One reading a second, for 120 days back.
import { hash, noise, uuid } from './random.js';
import { TENANT, iso } from './system.js';

const DAYS = 120;
const METRICS = [['temperature', '°C', 21, 4], ['humidity', '%', 62, 12], ['ammonia', 'ppm', 9, 4], ['weight', 'kg', 96, 18]];
const TAGS = [['FLOW_RATE', 'm³/h', 82, 14], ['PRESSURE', 'bar', 4.2, 0.9], ['TEMPERATURE', '°C', 71, 9], ['LEVEL', '%', 55, 20]];
/** Looked at in each bucket: enough to find a spike that lasts. */
const LOOKS = 24;

export function allSeries(system) {
  const made = [];
  const first_at = iso(system.now - DAYS * 86_400_000);
  const last_at = iso(system.now);
  for (const node of system.nodes.slice(0, 200)) {
    for (const [metric, unit] of METRICS.slice(0, 3)) {
      const device_id = uuid(`device ${node.site} ${node.id}`);
      made.push({ id: `site:${node.site}:${TENANT}:${device_id}:${metric}`, source: 'site', site: node.site, tenant_id: TENANT, device_id, name: `${node.site} ${node.id} ${metric}`, metric, unit, first_at, last_at });
    }
  }
  for (let u = 1; u <= 5; u++) {
    for (const [tag, unit] of TAGS) made.push({ id: `historian:PLANT01:AREA0${(u % 3) + 1}:UNIT_0${u}:${tag}`, source: 'historian', site: null, tenant_id: null, device_id: null, name: `PLANT01.AREA0${(u % 3) + 1}.UNIT_0${u}.${tag}`, metric: tag, unit, first_at, last_at });
  }
  return made;
}

function shape(id) {
  const metric = id.split(':').at(-1);
  return [...METRICS, ...TAGS].find(([name]) => name === metric) ?? METRICS[0];
}

function value(seed, [, , middle, swing], t) {
  const day = Math.sin(((t % 86_400) / 86_400) * 2 * Math.PI - 1.9 + (seed % 7) / 9);
  const hour = Math.sin(t / 1471 + seed) * 0.25;
  const slow = Math.sin(t / 540_000 + seed) * 0.4;
  const spike = noise(seed, Math.floor(t / 600)) > 0.997 ? 1.4 : 0;
  return Math.round((middle + swing * (day * 0.6 + hour + slow * 0.5 + spike + (noise(seed, Math.floor(t)) - 0.5) * 0.05)) * 100) / 100;
}

function gapsOf(seed, now) {
  const at = (hours) => now / 1000 - hours * 3600;
  const gaps = [{ from: at(3.1), to: at(2.75), count: 1260, reason: 'drop_oldest' }, { from: at(61), to: at(57), count: 14_400, reason: 'disk_full' }, { from: at(24 * 19), to: at(24 * 18.2), count: 69_120, reason: 'expired' }];
  return gaps.slice(seed % 2);
}

export function points(system, id, from, to, width) {
  const seed = hash(id);
  const kind = shape(id);
  const begin = Math.max(from, system.now / 1000 - DAYS * 86_400);
  const end = Math.min(to, system.now / 1000);
  const gaps = gapsOf(seed, system.now).filter((gap) => gap.to > from && gap.from < to);
  const t = [];
  const v = [];
  const bucket = (to - from) / width;
  const inGap = (at) => gaps.some((gap) => at >= gap.from && at < gap.to);
  let broken = false;
  const add = (at, reading) => {
    if (t.length && at <= t[t.length - 1]) return;
    t.push(at);
    v.push(reading);
  };
  let samples = 0;
  if (bucket <= 1) {
    for (let at = Math.ceil(begin); at <= end; at++) {
      if (inGap(at)) {
        if (!broken) add(at - 0.5, null);
        broken = true;
        continue;
      }
      broken = false;
      samples++;
      add(at, value(seed, kind, at));
    }
  } else {
    for (let start = begin; start < end; start += bucket) {
      if (inGap(start)) {
        if (!broken) add(start, null);
        broken = true;
        continue;
      }
      broken = false;
      let low = null;
      let high = null;
      const stop = Math.min(end, start + bucket);
      const looks = Math.min(LOOKS, Math.ceil(stop - start));
      for (let i = 0; i < looks; i++) {
        const at = Math.floor(start + ((stop - start) * i) / looks);
        const reading = value(seed, kind, at);
        if (low === null || reading < low[1]) low = [at, reading];
        if (high === null || reading > high[1]) high = [at, reading];
      }
      samples += Math.floor(stop - start);
      for (const [at, reading] of low[0] <= high[0] ? [low, high] : [high, low]) add(Math.max(at, start), reading);
    }
  }
  return { id, unit: kind[1], resolution: bucket <= 1 ? 'raw' : bucket < 60 ? 'buckets' : bucket < 3600 ? '1m' : '1h', samples, down_sampled: bucket > 1, truncated: false, t, v, gaps: gaps.map((gap) => ({ ...gap, from: iso(gap.from * 1000), to: iso(gap.to * 1000) })), error: null };
}

export function marks(system, from, to, limit) {
  const items = [];
  const kinds = [['alarm', 'high', 'HIGH_FLOW raised at PLANT01.AREA02.UNIT_02'], ['event', null, 'Feeding began in barn-1'], ['alarm', 'critical', 'LOW_PRESSURE raised at PLANT01.AREA03.UNIT_02'], ['event', null, 'Door of barn-2 opened']];
  const step = Math.max(4 * 3600, (to - from) / 40);
  for (let at = Math.ceil(from / step) * step; at < Math.min(to, system.now / 1000); at += step) {
    const pick = hash(String(Math.round(at / step)));
    const [kind, severity, text] = kinds[pick % 4];
    items.push({ at: iso((at + (pick % Math.floor(step / 2))) * 1000), until: null, kind, severity, text, series: null });
  }
  for (const ago of [2500, 5400, 8700]) {
    const at = system.now / 1000 - ago;
    if (at < from || at > to) continue;
    const [kind, severity, text] = kinds[ago % 3];
    items.push({ at: iso(at * 1000), until: kind === 'alarm' ? iso((at + 300) * 1000) : null, kind, severity, text, series: null });
  }
  items.sort((a, b) => (a.at < b.at ? -1 : 1));
  return { items: items.filter((one) => Date.parse(one.at) / 1000 <= to).slice(0, limit), truncated: items.length > limit };
}

export function csv(system, ids, from, to) {
  const lines = ['series,at,value,quality'];
  for (const id of ids) {
    const plot = points(system, id, from, to, Math.max(1, Math.ceil(to - from)));
    plot.t.forEach((at, i) => plot.v[i] !== null && lines.length < 100_001 && lines.push(`${id},${iso(at * 1000)},${plot.v[i]},good`));
  }
  if (lines.length > 100_000) lines.push('# truncated');
  return `${lines.join('\n')}\n`;
}
