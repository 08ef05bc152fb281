// A small farm that behaves: nodes produce, links carry, what cannot leave is held and drains later. One step a second; nothing is ever lost
// except what is declared. The real system is not imitated further than the page can see.
import { hash, noise, uuid } from './random.js';

export const TENANT = uuid('tenant: Green Valley');
const SITES = ['green-valley', 'north-hill', 'river-side', 'oak-farm', 'lake-view'];
const KEPT = 600;

export class System {
  constructor({ nodes = 24, sites = 3, now = Date.now() } = {}) {
    this.now = now - KEPT * 1000;
    this.ticks = 0;
    this.history = new Map();
    this.at = [];
    this.changed = new Set();
    const names = Array.from({ length: sites }, (_, i) => SITES[i] ?? `farm-${i + 1}`);
    this.sites = names.map((name) => ({
      name, uplinkCut: false, outbox: 3, oldestSince: null, away: false, inRate: 0, outRate: 0, nodeRate: 0, linkSince: now - 86_400_000 * 3, nodesSince: now - 86_400_000 * 9, dead: 0,
    }));
    this.nodes = [];
    for (let i = 0; i < nodes; i++) {
      const site = this.sites[i % this.sites.length];
      const id = `barn-${Math.floor(i / this.sites.length) + 1}`;
      const seed = hash(`${site.name}/${id}`);
      const acked = 40_000 + Math.floor(noise(seed, 1) * 900_000);
      this.nodes.push({
        site: site.name, id, seed, produces: 1 + noise(seed, 2) * 2.5, head: acked, acked, backlog: 0, rate: 0, cut: false,
        silentSince: i % 97 === 11 ? now - 5_400_000 : null, lost: i % 7 === 3 ? 40 + Math.floor(noise(seed, 3) * 400) : 0,
        quarantined: i % 31 === 4 ? 3 : 0, clock: i % 41 === 19 ? 'unset' : 'set', disk: 2e9 + noise(seed, 4) * 24e9, drops: 0,
        lastRx: now, lastSample: now, since: 0, credit: noise(seed, 6), history: { backlog: [], rate: [], age: [] },
      });
    }
    if (this.nodes[5]) this.nodes[5].disk = 380e6;
    this.relay = { held: 2, rate: 0, out: 0 };
    this.bus = { held: 4, rate: 0, out: 0 };
    this.store = { rate: 0, total: this.nodes.reduce((sum, node) => sum + node.acked, 0) };
    this.plant = { rate: 118, held: 3 };
    for (let i = 0; i < KEPT; i++) this.step();
  }

  step() {
    this.ticks += 1;
    this.now += 1000;
    const t = this.ticks;
    const intoEdge = new Map(this.sites.map((site) => [site.name, 0]));
    for (const node of this.nodes) {
      node.credit += node.produces * (0.8 + 0.4 * noise(node.seed, t));
      const made = Math.floor(node.credit);
      node.credit -= made;
      node.head += made;
      node.backlog += made;
      const dead = node.silentSince !== null;
      let sent = 0;
      if (!node.cut && !dead) {
        // Live readings leave at once; a backlog drains behind them at three times the usual pace.
        sent = Math.min(node.backlog, made + Math.ceil(node.produces * 3));
        node.backlog -= sent;
        node.acked += sent;
        node.lastRx = this.now;
        node.lastSample = this.now - Math.round((node.backlog / node.produces) * 1000);
      }
      if (dead) {
        node.head -= made;
        node.backlog = 120;
        node.lastRx = node.silentSince;
        node.lastSample = node.silentSince;
      }
      const before = node.backlog > 0;
      node.rate = node.rate * 0.7 + sent * 0.3;
      if (node.cut || dead || before || t % 10 === node.seed % 10) this.changed.add(node);
      push(node.history.backlog, node.backlog);
      push(node.history.rate, round(node.rate));
      push(node.history.age, round((this.now - node.lastSample) / 1000));
      intoEdge.set(node.site, intoEdge.get(node.site) + sent);
    }
    let intoCloud = 0;
    for (const site of this.sites) {
      const inn = intoEdge.get(site.name);
      site.outbox += inn;
      const out = site.uplinkCut ? 0 : Math.min(site.outbox, Math.max(4, Math.ceil(site.inRate * 4)));
      // Something is always on its way.
      const leaves = Math.max(0, Math.min(out, site.outbox - Math.floor(noise(hash(site.name), t) * 4)));
      site.outbox -= leaves;
      site.inRate = site.inRate * 0.75 + inn * 0.25;
      site.outRate = site.outRate * 0.6 + leaves * 0.4;
      if (site.outbox > 20) site.oldestSince ??= this.now - 1000;
      else site.oldestSince = null;
      intoCloud += leaves;
    }
    for (const [part, inn, seed] of [[this.relay, intoCloud, 7]]) {
      part.held += inn;
      const out = Math.max(0, Math.min(part.held, part.held - Math.floor(noise(seed, t) * 6)));
      part.held -= out;
      part.rate = part.rate * 0.7 + inn * 0.3;
      part.out = out;
    }
    this.bus.held = Math.floor(noise(8, t) * 9);
    this.bus.rate = this.bus.rate * 0.7 + this.relay.out * 0.3;
    this.store.rate = this.store.rate * 0.75 + this.relay.out * 0.25;
    this.store.total += this.relay.out;
    this.plant.rate = 112 + noise(9, t) * 14;
    this.plant.held = Math.floor(noise(10, t) * 5);
    push(this.at, new Date(this.now).toISOString());
    const flow = this.flow();
    for (const one of flow.stages) {
      let track = this.history.get(one.id);
      if (!track) this.history.set(one.id, (track = { rate_per_s: [], held: [] }));
      push(track.rate_per_s, one.rate_per_s);
      push(track.held, one.held);
    }
  }

  of(site) {
    return this.nodes.filter((node) => node.site === site);
  }

  flow() {
    const lanes = [];
    const stages = [];
    const links = [];
    for (const site of this.sites) {
      const nodes = this.of(site.name);
      const silent = nodes.filter((node) => node.silentSince !== null).length;
      const cut = nodes.filter((node) => node.cut).length;
      const held = nodes.reduce((sum, node) => sum + node.backlog, 0);
      const rate = round(nodes.reduce((sum, node) => sum + node.produces, 0));
      const worst = Math.max(0, ...nodes.map((node) => (node.backlog > 3 ? (this.now - node.lastSample) / 1000 : 0)));
      const arrive = round(nodes.reduce((sum, node) => sum + node.rate, 0));
      const allCut = cut === nodes.length;
      lanes.push({ id: site.name, name: site.name, kind: 'site' });
      const bad = held - silent * 120;
      stages.push({ id: `node:${site.name}`, kind: 'node', lane: site.name, name: site.name, state: bad > nodes.length * 8 ? 'waiting' : 'ok', rate_per_s: rate, held, oldest_age_s: held ? Math.round(worst) || 1 : null, detail: `${nodes.filter((node) => node.silentSince === null && !node.cut).length} of ${nodes.length} online` });
      links.push({ id: `nodes:${site.name}`, from: `node:${site.name}`, to: `edge:${site.name}`, state: allCut ? 'down' : cut ? 'degraded' : 'up', rate_per_s: arrive, breaker: null, held, drain_estimate_s: bad > nodes.length * 8 && !cut ? Math.ceil(bad / Math.max(1, rate * 2.5)) : null, since: iso(site.nodesSince), cuttable: true, cut: allCut });
      const age = site.oldestSince ? Math.round((this.now - site.oldestSince) / 1000) : site.outbox ? 1 : null;
      const open = site.uplinkCut;
      stages.push({ id: `edge:${site.name}`, kind: 'edge', lane: site.name, name: site.name, state: open && site.outbox > 60 ? 'broken' : site.outbox > 20 ? 'waiting' : 'ok', rate_per_s: arrive, held: site.outbox, oldest_age_s: age, detail: open ? 'outbox grows, the cloud cannot be reached' : 'outbox moves' });
      links.push({ id: `uplink:${site.name}`, from: `edge:${site.name}`, to: 'cloud', state: open ? (this.now - site.linkSince > 4000 ? 'down' : 'degraded') : 'up', rate_per_s: round(site.outRate), breaker: open ? (this.ticks % 12 < 2 ? 'half_open' : 'open') : 'closed', held: site.outbox, drain_estimate_s: !open && site.outbox > 20 ? Math.ceil(site.outbox / Math.max(1, site.inRate * 3)) : null, since: iso(site.linkSince), cuttable: true, cut: open });
    }
    lanes.push({ id: 'PLANT01', name: 'PLANT01', kind: 'plant' });
    for (const [i, name] of ['line-1', 'line-2'].entries()) {
      const share = round(this.plant.rate * (i ? 0.4 : 0.6));
      stages.push({ id: `producer:${name}`, kind: 'node', lane: 'PLANT01', name, state: 'ok', rate_per_s: share, held: this.plant.held, oldest_age_s: this.plant.held ? 1 : null, detail: 'outbox moves' });
      links.push({ id: `publish:${name}`, from: `producer:${name}`, to: 'bus:PLANT01', state: 'up', rate_per_s: share, breaker: null, held: this.plant.held, drain_estimate_s: null, since: iso(this.now - 8e8), cuttable: false, cut: false });
    }
    stages.push({ id: 'bus:PLANT01', kind: 'bus', lane: 'PLANT01', name: 'Kafka', state: 'ok', rate_per_s: round(this.plant.rate), held: this.plant.held, oldest_age_s: null, detail: 'Kafka, 2 partitions' });
    links.push({ id: 'consume:PLANT01', from: 'bus:PLANT01', to: 'historian', state: 'up', rate_per_s: round(this.plant.rate), breaker: null, held: this.plant.held, drain_estimate_s: null, since: iso(this.now - 8e8), cuttable: false, cut: false });
    stages.push({ id: 'historian', kind: 'store', lane: 'PLANT01', name: 'Historian', state: 'ok', rate_per_s: round(this.plant.rate), held: this.plant.held, oldest_age_s: null, detail: '3 nodes, 2 partitions assigned' });
    stages.push({ id: 'cloud', kind: 'cloud', lane: null, name: 'Cloud', state: 'ok', rate_per_s: round(this.relay.rate), held: this.relay.held, oldest_age_s: this.relay.held ? 1 : null, detail: 'accepted, not yet published' });
    stages.push({ id: 'bus', kind: 'bus', lane: null, name: 'Bus', state: 'ok', rate_per_s: round(this.bus.rate), held: this.bus.held, oldest_age_s: this.bus.held ? 1 : null, detail: 'RabbitMQ, 3 queues' });
    stages.push({ id: 'store', kind: 'store', lane: null, name: 'Store', state: 'ok', rate_per_s: round(this.store.rate), held: null, oldest_age_s: null, detail: `${this.store.total.toLocaleString('en')} stored` });
    links.push({ id: 'relay', from: 'cloud', to: 'bus', state: 'up', rate_per_s: round(this.bus.rate), breaker: 'closed', held: this.relay.held, drain_estimate_s: null, since: iso(this.now - 8e8), cuttable: false, cut: false });
    links.push({ id: 'store', from: 'bus', to: 'store', state: 'up', rate_per_s: round(this.store.rate), breaker: null, held: this.bus.held, drain_estimate_s: null, since: iso(this.now - 8e8), cuttable: false, cut: false });
    return { lanes, stages, links };
  }

  /** Cuts or restores; the names that changed, or null when there is no such link. */
  setLink(id, cut) {
    const [kind, siteName, nodeId] = id.split(':');
    const site = this.sites.find((one) => one.name === siteName);
    if (!site) return null;
    if (kind === 'uplink') {
      const changed = site.uplinkCut !== cut;
      site.uplinkCut = cut;
      if (changed) site.linkSince = this.now;
      return changed ? [siteName] : [];
    }
    const nodes = this.of(siteName).filter((node) => kind === 'nodes' || (kind === 'node' && node.id === nodeId));
    if (!nodes.length) return null;
    const changed = nodes.filter((node) => node.cut !== cut);
    for (const node of changed) {
      node.cut = cut;
      this.changed.add(node);
    }
    if (changed.length) site.nodesSince = this.now;
    return changed.map((node) => node.id);
  }

  row(node) {
    const rx = Math.round((this.now - node.lastRx) / 1000);
    const liveness = node.silentSince !== null ? 'offline' : rx > 120 ? 'offline' : rx > 10 ? 'late' : 'online';
    return {
      site: node.site, node_id: node.id, label: `${node.site} ${node.id.replace('-', ' ')}`, tenant_id: TENANT, farm_id: uuid(node.site), barn_id: uuid(`${node.site}${node.id}`), device_id: uuid(`device ${node.site} ${node.id}`),
      liveness, last_rx_at: iso(node.lastRx), rx_age_s: rx, last_sample_at: iso(node.lastSample), sample_age_s: Math.round((this.now - node.lastSample) / 1000),
      backlog: node.backlog, oldest_age_s: node.backlog > 3 ? Math.round((this.now - node.lastSample) / 1000) : null, spool_bytes: node.backlog * 212 + 4096, disk_free_bytes: Math.round(node.disk), clock: node.clock, drops: node.drops,
      stored: node.acked - node.lost - node.quarantined, lost: node.lost, quarantined: node.quarantined, rate_per_s: round(node.rate), version: '0.9.2', disabled: false,
      flagged: null, cuttable: true, cut: node.cut,
    };
  }

  totals() {
    const sum = (of) => this.nodes.reduce((all, node) => all + of(node), 0);
    const outbox = this.sites.reduce((all, site) => all + site.outbox, 0);
    return { produced: sum((n) => n.head), at_nodes: sum((n) => n.backlog), at_edges: outbox, in_cloud: sum((n) => n.acked) - outbox, in_relay: this.relay.held, lost: sum((n) => n.lost), quarantined: sum((n) => n.quarantined), dead_letters: 0 };
  }

  nodeCounts() {
    const counts = { total: this.nodes.length, online: 0, late: 0, offline: 0, never: 0, unknown: 0, with_backlog: 0, clock_unset: 0, flagged: 0 };
    for (const node of this.nodes) {
      const row = this.row(node);
      counts[row.liveness] += 1;
      if (row.backlog > 5) counts.with_backlog += 1;
      if (row.clock === 'unset') counts.clock_unset += 1;
    }
    return counts;
  }
}

function push(list, value) {
  list.push(value);
  if (list.length > KEPT) list.shift();
}
export const iso = (ms) => new Date(ms).toISOString();
export const round = (value) => Math.round(value * 10) / 10;
