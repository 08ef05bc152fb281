// Which tone and which words a state of the console has. One place, so that a state looks the same in every view.
import type { Alarm, Link, NodeRow, Queue, Stage, StreamRow, Where } from '../api/types';
import { words } from '../format';
import type { Tone } from './Mark.svelte';

export const stageTone: Record<Stage['state'], Tone> = { ok: 'ok', waiting: 'held', broken: 'bad', unknown: 'unknown' };
export const stageWord: Record<Stage['state'], string> = { ok: 'Moving', waiting: 'Waits', broken: 'Cannot send', unknown: 'Not known' };
export const linkTone: Record<Link['state'], Tone> = { up: 'ok', down: 'bad', degraded: 'held', unknown: 'unknown' };
export const queueTone: Record<Queue['state'], Tone> = stageTone;
export const livenessTone: Record<NodeRow['liveness'], Tone> = { online: 'ok', late: 'held', offline: 'bad', never: 'unknown', unknown: 'unknown' };
export const livenessWord: Record<NodeRow['liveness'], string> = { online: 'Online', late: 'Late', offline: 'Offline', never: 'Never heard', unknown: 'Not known' };
export const streamTone: Record<StreamRow['state'], Tone> = { whole: 'ok', moving: 'info', missing: 'bad', unknown: 'unknown' };
export const streamWord: Record<StreamRow['state'], string> = { whole: 'Whole', moving: 'On its way', missing: 'Missing', unknown: 'Not known' };
export const alarmTone: Record<Alarm['state'], Tone> = { active_unacknowledged: 'bad', active_acknowledged: 'held', cleared_unacknowledged: 'info', normal: 'ok' };
export const alarmWord: Record<Alarm['state'], string> = {
  active_unacknowledged: 'Active, not acknowledged',
  active_acknowledged: 'Active, acknowledged',
  cleared_unacknowledged: 'Cleared, not acknowledged',
  normal: 'Normal',
};
export const breakerWord: Record<NonNullable<Link['breaker']>, string> = { closed: 'closed', half_open: 'half open: one probe', open: 'open: holds back' };

/** A console that is newer than the page may say words that these tables do not have: then nobody knows what they mean, and they are shown as they are. */
export const toneOf = <K extends string>(table: Record<K, Tone>, word: K): Tone => table[word] ?? 'unknown';
export const wordOf = <K extends string>(table: Record<K, string>, word: K): string => table[word] ?? words(word);

/** A stage of an event's way. Of some the time is not kept, so that the state says whether it was reached: these words say that it was not. */
export function trailTone({ state }: Pick<Where['stages'][number], 'state'>): Tone {
  if (/^(rejected|given up|in quarantine|dlq)/.test(state)) return 'bad';
  if (/^(not yet|pending|claimed|sending)/.test(state)) return 'held';
  return /^(unknown|in no |the cloud was not asked)/.test(state) ? 'unknown' : 'ok';
}
