// A week of one person's shifts, with versions and what changed between them: docs/spec/schedule.md.
import { iso } from './system.js';

const USERS = ['anna.k', 'jonas.m'];
const shift = (start, end, title, location, extra = {}) => ({ start, end, ends_next_day: end <= start, title, location, customer: 'St. Anna', kind: 'regular', ...extra });

export function week(system, user, from) {
  const who = USERS.includes(user) ? user : USERS[0];
  const monday = from ? new Date(`${from}T00:00:00Z`) : new Date(system.now);
  monday.setUTCDate(monday.getUTCDate() - ((monday.getUTCDay() + 6) % 7));
  const days = Array.from({ length: 7 }, (_, i) => {
    const date = new Date(monday.getTime() + i * 86_400_000).toISOString().slice(0, 10);
    const at = (hours) => iso(monday.getTime() - 3 * 86_400_000 + hours * 3_600_000);
    if (i === 6) return { date, current_version: null, versions: [] };
    const first = { version: 1, observed_at: at(9), shifts: i < 5 ? [shift('08:00', '16:30', 'nurse', 'ward 3')] : [shift('22:00', '06:00', 'night watch', 'ward 1')], events: [] };
    const versions = [first];
    if (i === 1) versions.push({ version: 2, observed_at: at(30), shifts: [shift('09:00', '17:30', 'nurse', 'ward 3')], events: [{ event_type: 'shift_time_changed', old_value: first.shifts[0], new_value: shift('09:00', '17:30', 'nurse', 'ward 3') }] });
    if (i === 3) {
      const moved = shift('08:00', '16:30', 'nurse', 'ward 5');
      const added = shift('18:00', '20:00', 'training', 'room 12', { kind: 'training' });
      versions.push({ version: 2, observed_at: at(26), shifts: [moved], events: [{ event_type: 'shift_relocated', old_value: first.shifts[0], new_value: moved }] });
      versions.push({ version: 3, observed_at: at(51), shifts: [moved, added], events: [{ event_type: 'shift_added', old_value: null, new_value: added }] });
    }
    return { date, current_version: versions.length, versions };
  });
  return { user: who, users: USERS, from: days[0].date, timezone: 'Europe/Berlin', days };
}
