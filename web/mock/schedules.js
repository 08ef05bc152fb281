// A week of one person's shifts, with versions and what changed between them: docs/spec/console.md.
import { iso } from './system.js';

const USERS = ['1001', '1002'];
const DAY = 86_400_000;
const shift = (start, end, title, location, extra = {}) => ({ start, end, ends_next_day: end <= start, title, location, customer: 'st. anna', kind: 'regular', ...extra });
const added = (one) => ({ types: ['shift_added'], old: null, new: one });

export function week(system, user, from) {
  const who = user || USERS[0];
  const first = new Date(from ? `${from}T00:00:00Z` : new Date(system.now).toISOString().slice(0, 10));
  if (!from) first.setUTCDate(first.getUTCDate() - ((first.getUTCDay() + 6) % 7));
  const days = Array.from({ length: 7 }, (_, i) => {
    const schedule_date = new Date(first.getTime() + i * DAY).toISOString().slice(0, 10);
    const at = (hours) => iso(first.getTime() - 3 * DAY + hours * 3_600_000);
    if (i === 6 || !USERS.includes(who)) return { schedule_date, current_version: null, timezone: null, versions: [] };
    const one = i < 5 ? shift('08:00', '16:30', 'nurse', 'ward 3') : shift('22:00', '06:00', 'night watch', 'ward 1');
    const versions = [{ version: 1, created_at: at(9), shifts: [one], changes: [added(one)] }];
    if (i === 1) {
      const later = shift('09:00', '17:30', 'nurse', 'ward 4');
      versions.push({ version: 2, created_at: at(30), shifts: [later], changes: [{ types: ['shift_time_changed', 'shift_relocated'], old: one, new: later }] });
    }
    if (i === 3) {
      const moved = shift('08:00', '16:30', 'nurse', 'ward 5');
      const course = shift('18:00', '20:00', 'training', 'room 12', { kind: 'training' });
      versions.push({ version: 2, created_at: at(26), shifts: [moved], changes: [{ types: ['shift_relocated'], old: one, new: moved }] });
      versions.push({ version: 3, created_at: at(51), shifts: [moved, course], changes: [added(course)] });
    }
    return { schedule_date, current_version: versions.length, timezone: 'Europe/Berlin', versions };
  });
  return { user: who, users: USERS, more_users: false, from: days[0].schedule_date, days };
}
