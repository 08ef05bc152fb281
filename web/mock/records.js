// What the system has besides its flow: dead letters, alarms, weighing sessions, gaps, schedules, jobs.
import { hash, noise, uuid } from './random.js';
import { TENANT, iso } from './system.js';

const TAGS = [
  ['HIGH_FLOW', 'm³/h', 'HIGH'], ['LOW_PRESSURE', 'bar', 'CRITICAL'], ['HIGH_TEMPERATURE', '°C', 'HIGH'], ['HIGH_VIBRATION', 'mm/s', 'MEDIUM'], ['INSTRUMENT_FAULT', '', 'LOW'], ['LOW_LEVEL', '%', 'MEDIUM'],
];
const STATES = ['active_unacknowledged', 'active_acknowledged', 'cleared_unacknowledged', 'normal'];

export class Records {
  constructor(system, { flood = false } = {}) {
    this.system = system;
    this.jobs = new Map();
    const now = system.now;
    this.alarms = Array.from({ length: 22 }, (_, i) => {
      const [tag, unit, severity] = TAGS[i % TAGS.length];
      const area = `AREA0${(i % 3) + 1}`;
      const unitName = `UNIT_0${(i % 5) + 1}`;
      const state = i < 4 ? STATES[0] : i < 9 ? STATES[1] : i < 12 ? STATES[2] : STATES[3];
      const raised = now - 60_000 * (3 + i * 7);
      return {
        id: `PLANT01.${area}.${unitName}.${tag}`, plant: 'PLANT01', area, unit_name: unitName, tag, state, severity, value: Math.round((40 + noise(i, 5) * 80) * 10) / 10, unit,
        last_raised_at: iso(raised), last_cleared_at: i >= 9 ? iso(raised + 90_000) : null, acknowledged_at: state === 'active_acknowledged' ? iso(raised + 60_000) : null, acknowledged_by: state === 'active_acknowledged' ? 'shift-lead' : null,
        shelved_until: i === 8 ? iso(now + 35 * 60_000) : null, shelved_by: i === 8 ? 'shift-lead' : null, shelf_reason: i === 8 ? 'sensor is being replaced' : null, chattering: i === 2, occurrences: 1 + Math.floor(noise(i, 6) * 40),
      };
    }).filter((one, i, all) => all.findIndex((other) => other.id === one.id) === i);
    // More than a page of alarms that are over, and behind them one that was raised before and that nobody has dealt with.
    const over = { ...this.alarms.at(-1), state: STATES[3], severity: 'LOW', tag: 'INSTRUMENT_FAULT', unit: '', chattering: false, occurrences: 1 };
    for (let i = 0; i < 260; i++) {
      const unit_name = `UNIT_${100 + i}`;
      this.alarms.push({ ...over, unit_name, id: `PLANT01.${over.area}.${unit_name}.${over.tag}`, last_raised_at: iso(now - 3 * 3_600_000 - i * 1_800_000), last_cleared_at: iso(now - 3 * 3_600_000 - i * 1_800_000 + 90_000) });
    }
    this.alarms.push({ ...over, state: STATES[1], severity: 'MEDIUM', tag: 'LOW_LEVEL', unit: '%', value: 11.5, unit_name: 'UNIT_99', id: `PLANT01.${over.area}.UNIT_99.LOW_LEVEL`, last_raised_at: iso(now - 9 * 86_400_000), last_cleared_at: null, acknowledged_at: iso(now - 9 * 86_400_000 + 240_000), acknowledged_by: 'shift-lead' });
    this.floods = flood ? [{ position: 'PLANT01', started_at: iso(now - 240_000), peak: 37 }] : [];
    this.giveUp();
    this.sessions = Array.from({ length: 137 }, (_, i) => this.#session(i, now));
    this.gaps = system.nodes.filter((node) => node.lost).flatMap((node) => {
      const reasons = ['drop_oldest', 'expired', 'corrupt', 'disk_full'];
      return [0, 1].slice(0, 1 + (node.seed % 2)).map((n) => {
        const count = n ? Math.ceil(node.lost / 3) : node.lost - (node.seed % 2 ? Math.ceil(node.lost / 3) : 0);
        const start = now - 3_600_000 * (5 + (node.seed % 60) + n * 90);
        return { tenant_id: TENANT, stream: node.id, epoch: uuid(`epoch ${node.site}${node.id}`), from_seq: 1200 + n * 40_000, to_seq: 1200 + n * 40_000 + count - 1, count, lost: count, first_at: iso(start), last_at: iso(start + count * 1000), reason: reasons[(node.seed + n) % 4], origin: n ? 'edge' : 'node', recorded_at: iso(start + count * 1000 + 4000) };
      });
    }).sort((a, b) => (a.recorded_at < b.recorded_at ? 1 : -1));
    // It grew and was declared again from where it began; what it grew by came after all.
    const [grown] = this.gaps;
    if (grown) this.gaps.unshift({ ...grown, to_seq: grown.to_seq + 40, count: grown.count + 40, lost: grown.count, recorded_at: iso(Date.parse(grown.recorded_at) + 60_000) });
  }

  /** Dead letters in every queue, as many as at the beginning: those that were there are redriven by one test and needed by another. */
  giveUp() {
    const now = this.system.now;
    const first = this.system.sites[0].name;
    const group = (cause, event_type, queue, count, age, sample) => ({ cause, event_type, queue, tenant_id: TENANT, count, first_at: iso(now - age), last_at: iso(now - age / 6), sample_id: uuid(cause + event_type), sample_message: sample });
    this.dead = new Map([
      [`outbox:${first}`, [group('schema', 'telemetry.reading', null, 14, 7_200_000, 'value: expected a number, found "n/a"'), group('too_large', 'media.stored', null, 2, 86_400_000, 'the event has 1,204,331 bytes; the cloud takes 1,048,576')]],
      ['relay', [group('unroutable', 'weighvision.session.finalized', 'weighvision.analytics', 3, 5_400_000, 'no queue is bound for this routing key')]],
      ['bus', [group('constraint', 'telemetry.reading', 'telemetry.ingest', 27, 3_600_000, 'metric "tempp" is not known to tenant Green Valley'), group('timeout', 'media.stored', 'media.sync', 5, 1_800_000, 'the object store did not answer within 30 s')]],
      ['historian', [{ ...group('incompatible_schema', 'TEMPERATURE', 'scada-historian', 4, 2_700_000, 'the schema has major version 2, this historian reads 1'), tenant_id: null }]],
      ['producer:line-2', [{ cause: 'refused', event_type: 'FLOW_RATE', queue: null, tenant_id: null, count: 2, first_at: iso(now - 5_400_000), last_at: iso(now - 5_100_000), sample_id: null, sample_message: 'the broker refused it: message too large' }]],
    ]);
  }

  #session(i, now) {
    const start = now - 2_820_000 * (i + 0.1);
    const status = i === 0 ? 'created' : i % 17 === 9 ? 'cancelled' : 'finalized';
    const weight = 82 + noise(hash('weight'), i) * 46;
    const images = status === 'cancelled' ? 1 : 2 + (i % 3);
    return {
      session_id: uuid(`session ${i}`), tenant_id: TENANT, status, farm_id: uuid('green-valley'), barn_id: uuid('green-valleybarn-1'), device_id: uuid('scale 1'), batch_id: null, started_at: iso(start),
      finalized_at: status === 'finalized' ? iso(start + 48_000) : null, cancelled_at: status === 'cancelled' ? iso(start + 20_000) : null, cancel_reason: status === 'cancelled' ? 'the animal left the scale' : null,
      initial_weight_kg: Math.round((weight + 1.2) * 10) / 10, final_weight_kg: status === 'finalized' ? Math.round(weight * 10) / 10 : null, image_count: status === 'finalized' ? images : null,
      media_arrived: i === 4 ? 1 : images, results_arrived: status === 'created' ? 0 : images, complete: status !== 'created' && i !== 4,
    };
  }

  sessionPage(id) {
    const i = this.sessions.findIndex((one) => one.session_id === id);
    if (i < 0) return null;
    const session = this.sessions[i];
    const base = session.final_weight_kg ?? session.initial_weight_kg;
    const media = Array.from({ length: session.media_arrived }, (_, n) => ({ media_id: uuid(`${id} image ${n}`), occurred_at: iso(Date.parse(session.started_at) + 6000 * (n + 1)), mime_type: 'image/png', size_bytes: 118_000 + n * 4211, copy_status: 'stored', src: `/api/v1/media/${uuid(`${id} image ${n}`)}` }));
    const inference = Array.from({ length: session.results_arrived }, (_, n) => ({ inference_result_id: uuid(`${id} result ${n}`), occurred_at: iso(Date.parse(session.started_at) + 6000 * (n + 1) + 1800), predicted_weight_kg: Math.round((base + (noise(hash(id), n) - 0.5) * 5) * 10) / 10, confidence: Math.round((0.82 + noise(hash(id), n + 9) * 0.17) * 100) / 100, model_version: 'weigh-2.3' }));
    return { session, media, inference };
  }

  counts() {
    const n = (state) => this.alarms.filter((one) => one.state === state).length;
    return { active_unacknowledged: n(STATES[0]), active_acknowledged: n(STATES[1]), cleared_unacknowledged: n(STATES[2]), shelved: this.alarms.filter((one) => one.shelved_until).length, flood: this.floods.length > 0 };
  }

  /** The alarm afterwards; null: none; a text: why not. */
  alarm(id, action, body, by) {
    const alarm = this.alarms.find((one) => one.id === id);
    if (!alarm) return null;
    const now = this.system.now;
    if (action === 'acknowledge') {
      if (!alarm.state.endsWith('unacknowledged')) return `${id} is ${alarm.state}: there is nothing to acknowledge`;
      alarm.state = alarm.state === STATES[0] ? STATES[1] : STATES[3];
      Object.assign(alarm, { acknowledged_at: iso(now), acknowledged_by: by });
    } else if (action === 'shelve') {
      if (alarm.shelved_until) return `${id} is shelved already`;
      Object.assign(alarm, { shelved_until: iso(now + body.minutes * 60_000), shelved_by: by, shelf_reason: body.reason });
    } else {
      if (!alarm.shelved_until) return `${id} is not shelved`;
      Object.assign(alarm, { shelved_until: null, shelved_by: null, shelf_reason: null });
    }
    return alarm;
  }

  queues() {
    const { system } = this;
    const dead = (id) => (this.dead.get(id) ?? []).reduce((sum, group) => sum + group.count, 0);
    const items = system.sites.map((site) => {
      const link = system.flow().links.find((one) => one.id === `uplink:${site.name}`);
      const id = `outbox:${site.name}`;
      return {
        id, kind: 'outbox', site: site.name, name: `Outbox of ${site.name}`, state: site.uplinkCut ? 'broken' : site.outbox > 20 ? 'waiting' : 'ok', held: site.outbox, oldest_age_s: site.oldestSince ? Math.round((system.now - site.oldestSince) / 1000) : site.outbox ? 1 : null,
        in_per_s: link && Math.round(site.inRate * 10) / 10, out_per_s: link.rate_per_s, drain_estimate_s: link.drain_estimate_s, breaker: link.breaker, paused_until: site.uplinkCut ? iso(system.now + 9000) : null, last_failure: site.uplinkCut ? 'no connection to the cloud: connection refused' : null,
        stuck: 0, dead: dead(id), groups: this.dead.get(id) ?? [], redrivable: true, note: null,
      };
    });
    const shared = (id, name, part, note) => ({ id, kind: id, site: null, name, state: 'ok', held: part.held, oldest_age_s: part.held ? 1 : null, in_per_s: Math.round(part.rate * 10) / 10, out_per_s: Math.round(part.rate * 10) / 10, drain_estimate_s: null, breaker: id === 'relay' ? 'closed' : null, paused_until: null, last_failure: null, stuck: 0, dead: dead(id), groups: this.dead.get(id) ?? [], redrivable: true, note });
    // What a SCADA node gave up is looked at here and sent again where it is.
    const producer = { ...shared('producer:line-2', 'Outbox of SCADA line-2', { held: system.plant.held, rate: system.plant.rate * 0.4 }, 'Sent again on its own machine: `holdfast scada producer redrive`'), kind: 'producer', redrivable: false, groups: this.dead.get('producer:line-2') };
    return { at: iso(system.now), items: [...items, shared('relay', 'Relay', system.relay, null), shared('bus', 'Bus', system.bus, 'RabbitMQ: telemetry.ingest, weighvision.analytics, media.sync'), shared('historian', 'Historian', { held: null, rate: system.bus.rate }, null), producer] };
  }

  deadTotal() {
    return [...this.dead.values()].flat().reduce((sum, group) => sum + group.count, 0);
  }

  start(kind, target, run) {
    const job = { id: uuid(`job ${this.jobs.size} ${this.system.now}`), kind, target, state: 'running', started_at: iso(Date.now()), ended_at: null, done: 0, total: null, message: 'started', verify: null, redrive: null };
    this.jobs.set(job.id, job);
    run(job);
    return job;
  }

  redrive(id, body) {
    const groups = this.dead.get(id);
    if (!groups || id.startsWith('producer:')) return null;
    return this.start('redrive', id, (job) => {
      const meant = groups.filter((group) => !body.cause || group.cause === body.cause);
      const by_cause = meant.map((group) => ({ cause: group.cause, count: group.count }));
      const matched = by_cause.reduce((sum, one) => sum + one.count, 0);
      job.total = matched;
      if (body.dry_run) {
        setTimeout(() => Object.assign(job, { state: 'done', done: 0, ended_at: iso(Date.now()), message: `${matched} would be sent again`, redrive: { dry_run: true, matched, changed: 0, by_cause } }), 300);
        return;
      }
      const timer = setInterval(() => {
        job.done = Math.min(matched, job.done + Math.max(1, Math.ceil(matched / 6)));
        job.message = `${job.done} of ${matched} stored`;
        if (job.done < matched) return;
        clearInterval(timer);
        this.dead.set(id, groups.filter((group) => !meant.includes(group)));
        Object.assign(job, { state: 'done', ended_at: iso(Date.now()), redrive: { dry_run: false, matched, changed: matched, by_cause } });
      }, 350);
    });
  }

  verify(body) {
    const nodes = this.system.of(body.site).filter((node) => !body.node || node.id === body.node);
    return this.start('verify', body.site, (job) => {
      job.total = nodes.length;
      const timer = setInterval(() => {
        job.done = Math.min(nodes.length, job.done + Math.max(1, Math.ceil(nodes.length / 5)));
        job.message = `${job.done} of ${nodes.length} streams compared`;
        if (job.done < nodes.length) return;
        clearInterval(timer);
        const streams = nodes.map((node) => {
          const held = { acked: node.acked, received: node.acked - node.lost, lost: node.lost, kept: node.acked - node.lost };
          const onItsWay = this.system.sites.find((site) => site.name === body.site).outbox;
          return { tenant_id: TENANT, stream: node.id, epoch: uuid(`epoch ${node.site}${node.id}`), edge: held, cloud: { ...held }, blocks: 12, unchecked: 0, wrong: 0, findings: onItsWay > 20 && node === nodes[0] ? [{ kind: 'missing_in_cloud', from: node.acked - 30, to: node.acked, count: 31, held_by: 'edge', wrong: false }] : [] };
        });
        Object.assign(job, { state: 'done', ended_at: iso(Date.now()), message: 'both hold the same', verify: { wrong: 0, streams, notes: ['What is still on its way is not counted as wrong.'] } });
      }, 350);
    });
  }
}
