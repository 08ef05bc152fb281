// The rules of docs/spec/console.md, as far as this system can break them.
import { iso } from './system.js';

export function alerts(system, records, memory) {
  const items = [];
  const add = (rule, severity, subject, site, value, threshold, unit, text, what_to_do) => {
    const id = `${rule}:${subject}`;
    const since = memory.get(id) ?? system.now;
    memory.set(id, since);
    items.push({ id, rule, severity, subject, site, since: iso(since), value, threshold, unit, text, what_to_do });
  };
  for (const site of system.sites) {
    if (site.uplinkCut) add('breaker_open', 'warning', `uplink of ${site.name}`, site.name, null, null, '', `${site.name} cannot reach the cloud. What it stores waits in its outbox.`, 'Check the site’s internet link and the cloud’s address. Nothing is lost: the outbox drains when the link is back.');
    const age = site.oldestSince ? (system.now - site.oldestSince) / 1000 : 0;
    if (age > 30) add('oldest_pending', age > 300 ? 'critical' : 'warning', `outbox of ${site.name}`, site.name, Math.round(age), age > 300 ? 300 : 30, 's', `The oldest event in the outbox of ${site.name} waits for ${Math.round(age)} s.`, 'Look at the uplink first; then at the forwarder’s log with holdfast outbox status.');
  }
  for (const queue of records.queues().items) {
    if (queue.dead) add('dead_letters', queue.dead > 10 ? 'critical' : 'warning', queue.name, queue.site, queue.dead, queue.dead > 10 ? 10 : 0, 'events', `${queue.dead} events were given up in ${queue.name}.`, 'Open Queues, read the cause, mend it, and redrive. A dry run shows what would be sent.');
  }
  for (const node of system.nodes) {
    const row = system.row(node);
    const name = `${node.site}/${node.id}`;
    if (row.liveness === 'offline' || row.liveness === 'late') add('node_silent', row.liveness === 'offline' ? 'critical' : 'warning', name, node.site, row.rx_age_s, row.liveness === 'offline' ? 120 : 10, 's', `Nothing was received from ${name} for ${row.rx_age_s} s.`, 'Check its power and its network. It keeps what it measures and sends it later.');
    if (row.disk_free_bytes < 5e8) add('node_disk', 'warning', name, node.site, row.disk_free_bytes, 5e8, 'bytes', `${name} has ${Math.round(row.disk_free_bytes / 1e6)} MB of disk left.`, 'Free space on the field computer, or lower its spool limit. At the limit the oldest readings are dropped and declared.');
    if (row.clock === 'unset') add('node_clock', 'warning', name, node.site, null, null, '', `${name} does not know the time.`, 'Give it a time server. Its readings are kept in order and their times are mended later.');
  }
  for (const id of memory.keys()) if (!items.some((one) => one.id === id)) memory.delete(id);
  const order = { critical: 0, warning: 1 };
  return { at: iso(system.now), items: items.sort((a, b) => order[a.severity] - order[b.severity] || (a.since < b.since ? -1 : 1)) };
}
