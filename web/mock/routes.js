// What the mock answers to a request that may be answered. Null: there is no such thing.
import { alerts } from './alerts.js';
import { allSeries, csv, marks, points } from './explore.js';
import { picture as png } from './png.js';
import { uuid } from './random.js';
import { week } from './schedules.js';
import { TENANT, iso } from './system.js';

const RANK = { online: 0, late: 1, offline: 2, never: 3, unknown: 4 };

export function picture({ system, records, memory }) {
  const found = alerts(system, records, memory).items;
  const upstream = (id, kind, name) => ({ id, kind, name, state: 'here', since: iso(system.now - 7e6), error: null, took_ms: 4 });
  return {
    tick: system.ticks, at: iso(system.now),
    upstreams: [...system.sites.map((site) => upstream(`site:${site.name}`, 'site', site.name)), upstream('cloud', 'cloud', 'cloud'), upstream('historian', 'historian', 'historian'), upstream('producer:press', 'producer', 'press'), upstream('up', 'up', 'up')],
    flow: system.flow(), totals: { ...system.totals(), dead_letters: records.deadTotal() }, nodes: system.nodeCounts(),
    alerts: { critical: found.filter((one) => one.severity === 'critical').length, warning: found.filter((one) => one.severity === 'warning').length },
    alarms: records.counts(),
  };
}

export function route(world, session, method, path, query, body) {
  const { system, records } = world;
  const parts = path.split('/').slice(3).map(decodeURIComponent);
  const [what, ...rest] = parts;
  const ok = (answer) => (answer ? { body: answer } : null);
  const slice = (list, fallback = 100) => {
    const offset = Number(query.get('offset') ?? 0);
    const limit = Math.min(1000, Number(query.get('limit') ?? fallback));
    return { total: list.length, offset, items: list.slice(offset, offset + limit) };
  };
  const paged = (list, fallback) => {
    const start = Number(query.get('cursor') ?? 0);
    const limit = Number(query.get('limit') ?? fallback);
    return { items: list.slice(start, start + limit), next_cursor: start + limit < list.length ? String(start + limit) : null };
  };
  const post = method === 'POST';
  switch (what) {
    case 'me':
      return ok({ name: session.name, role: session.role, can_act: session.role !== 'viewer', tenants: null, tenants_seen: [TENANT], expires_at: iso(Date.now() + 43_200_000), views: ['flow', 'conservation', 'nodes', 'explore', 'sessions', 'alarms', 'queues', 'alerts', ...(world.schedules ? ['schedules'] : [])], sites: system.sites.map((site) => site.name), in_up: world.inUp });
    case 'picture':
      return ok(picture(world));
    case 'flow':
      return ok({ step_s: 1, at: system.at, series: [...system.history].map(([id, track]) => ({ id, ...track })) });
    case 'links': {
      if (!post || !world.inUp) return null;
      const changed = system.setLink(rest[0], rest[1] === 'cut');
      return changed && ok({ changed });
    }
    case 'nodes':
      return rest.length === 2 ? nodePage(system, rest) : ok(slice(nodes(system, query)));
    case 'conservation':
      return rest[0] === 'gaps' ? ok(paged(records.gaps.filter((gap) => (!query.get('stream') || gap.stream === query.get('stream')) && (!query.get('from') || gap.last_at >= query.get('from')) && (!query.get('to') || gap.first_at < query.get('to'))), 200)) : ok(conservation(system, query, slice));
    case 'verify':
      return post ? { status: 202, body: { job_id: records.verify(body).id } } : null;
    case 'where':
      return where(system, rest[0]);
    case 'jobs':
      return rest[0] ? ok(records.jobs.get(rest[0])) : ok({ items: [...records.jobs.values()] });
    case 'queues': {
      if (!post) return ok(records.queues());
      const job = records.redrive(rest[0], body);
      return job && { status: 202, body: { job_id: job.id } };
    }
    case 'alerts':
      return ok(alerts(system, records, world.memory));
    case 'alarms':
      return post ? alarmAction(records, session, rest, body) : alarmList(records, query, paged);
    case 'sessions':
      return rest[0] ? ok(records.sessionPage(rest[0])) : ok(paged(records.sessions.filter((one) => (!query.get('status') || one.status === query.get('status')) && (!query.get('from') || one.started_at >= query.get('from')) && (!query.get('to') || one.started_at < query.get('to'))), 50));
    case 'media':
      return { body: png(rest[0]), headers: { 'content-type': 'image/png', 'cache-control': 'no-store' } };
    case 'explore':
      return explore(system, rest[0], query);
    case 'schedules':
      return world.schedules ? ok(week(system, query.get('user'), query.get('from'))) : null;
  }
  return null;
}

function nodes(system, query) {
  const q = (query.get('q') ?? '').toLowerCase();
  const sort = query.get('sort') ?? 'node_id';
  const sign = query.get('order') === 'desc' ? -1 : 1;
  const key = (row) => (sort === 'liveness' ? RANK[row.liveness] : row[sort]);
  const byName = (a, b) => a.node_id.localeCompare(b.node_id, 'en', { numeric: true }) || a.site.localeCompare(b.site);
  return system.nodes.map((node) => system.row(node))
    .filter((row) => (!query.get('site') || row.site === query.get('site')) && (!query.get('liveness') || row.liveness === query.get('liveness')) && (!q || row.node_id.includes(q) || row.label.includes(q)))
    .sort((a, b) => sign * (sort === 'node_id' ? byName(a, b) : (key(a) ?? -1) - (key(b) ?? -1)) || byName(a, b));
}

function nodePage(system, [site, id]) {
  const node = system.nodes.find((one) => one.site === site && one.id === id);
  if (!node) return null;
  return { body: { node: system.row(node), enrolled_at: iso(system.now - 9e9), disabled_at: null, flagged_at: null, status_at: iso(node.lastRx), epoch: uuid(`epoch ${node.site}${node.id}`), epochs: 1, head: node.head, acked: node.acked, received: node.acked - node.lost, recovered: 0, cloned: 0, lost_ranges: node.lost ? [[1200, 1200 + node.lost - 1]] : [], history: { step_s: 1, at: system.at, backlog: node.history.backlog, rate_per_s: node.history.rate, sample_age_s: node.history.age } } };
}

function conservation(system, query, slice) {
  const q = (query.get('q') ?? '').toLowerCase();
  const rows = system.nodes.map((node) => {
    const site = system.sites.find((one) => one.name === node.site);
    const at_edge = Math.min(node.acked, Math.round(site.outbox / system.of(node.site).length));
    const at_node = node.head - node.acked;
    return { site: node.site, tenant_id: TENANT, stream: node.id, epoch: uuid(`epoch ${node.site}${node.id}`), produced: node.head, stored: node.acked - at_edge - node.lost - node.quarantined, quarantined: node.quarantined, lost: node.lost, missing: 0, in_flight: at_node + at_edge, at_node, at_edge, state: at_node + at_edge > 3 ? 'moving' : 'whole' };
  }).filter((row) => (!query.get('site') || row.site === query.get('site')) && (!q || row.stream.includes(q)) && (!query.get('state') || row.state === query.get('state')));
  const totals = { produced: 0, stored: 0, quarantined: 0, lost: 0, missing: 0, in_flight: 0 };
  for (const row of rows) for (const name of Object.keys(totals)) totals[name] += row[name];
  return { at: iso(system.now), totals, ...slice(rows), notes: [] };
}

function where(system, id) {
  if (!/^[0-9a-f-]{36}$/.test(id ?? '')) return { refused: 'An event id is a UUID.', status: 400, code: 'malformed' };
  if (id.startsWith('00000000')) return null;
  const at = (seconds) => iso(system.now - seconds * 1000);
  // As the console says it: of two stages the time is not kept.
  const stages = [
    { stage: 'spooled', state: 'barn-1 seq 40217: acknowledged, and gone from the node\'s spool', at: null },
    { stage: 'received', state: 'stored at the edge', at: at(62) },
    { stage: 'sent', state: 'acked', at: at(60) },
    { stage: 'accepted', state: 'yes', at: at(60) },
    { stage: 'published', state: 'confirmed by the bus', at: null },
    { stage: 'stored', state: 'telemetry_reading', at: at(58) },
  ];
  return { body: { event_id: id, site: system.sites[0].name, tenant_id: TENANT, stages, notes: [] } };
}

function alarmList(records, query, paged) {
  const list = records.alarms
    .filter((one) => (!query.get('state') || one.state === query.get('state')) && (!query.get('severity') || one.severity === query.get('severity')) && (!query.get('shelved') || (query.get('shelved') === 'true') === Boolean(one.shelved_until)) && (!query.get('open') || (query.get('open') === 'true') === (one.state !== 'normal' && !one.shelved_until)))
    .sort((a, b) => (a.last_raised_at < b.last_raised_at ? 1 : -1));
  return { body: { ...paged(list, 100), counts: records.counts(), floods: records.floods } };
}

function alarmAction(records, session, [id, action], body) {
  const answer = records.alarm(id, action, body, session.name);
  if (typeof answer === 'string') return { refused: answer, status: 409, code: 'not_allowed' };
  return answer && { body: answer };
}

function explore(system, what, query) {
  const ids = query.getAll('series');
  const from = Date.parse(query.get('from')) / 1000;
  const to = Date.parse(query.get('to')) / 1000;
  if (what === 'series') {
    const words = (query.get('q') ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    const found = allSeries(system).filter((one) => (!query.get('source') || one.source === query.get('source')) && words.every((word) => one.name.toLowerCase().includes(word)));
    const limit = Number(query.get('limit') ?? 200);
    return { body: { items: found.slice(0, limit), more: found.length > limit } };
  }
  if (!(to > from)) return { refused: 'to must be after from.', status: 400, code: 'malformed' };
  if (what === 'marks') return { body: marks(system, from, to, Number(query.get('limit') ?? 500)) };
  if (what === 'csv') return { body: csv(system, ids, from, to), headers: { 'content-type': 'text/csv', 'content-disposition': 'attachment; filename="holdfast.csv"' } };
  if (what !== 'points') return null;
  const width = Math.max(50, Math.min(4000, Number(query.get('width') ?? 1000)));
  return { body: { from: iso(from * 1000), to: iso(to * 1000), width, series: ids.slice(0, 8).map((id) => points(system, id, from, to, width)) } };
}
