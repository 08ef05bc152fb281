// What links and lanes come to, in words.
import type { Link, Stage } from '../../api/types';
import type { Tone } from '../../parts/Mark.svelte';

/** Something is always on its way, and is gone before it could be read: a backlog is named when it lasts longer. */
const WORTH_SAYING_S = 5;

export function drains(link: Link): boolean {
  return (link.drain_estimate_s ?? 0) > WORTH_SAYING_S;
}

/** A link that somebody has cut has a hole at once, also while nobody has noticed yet that nothing comes through. */
export function shape(link: Link): Link['state'] {
  return link.cut ? 'down' : link.state;
}

/** Why a link is not simply up; null when it is. */
export function trouble(link: Link): string | null {
  const state = shape(link);
  if (link.id === 'store' && state === 'down') return 'Not consumed';
  if (link.id === 'store' && state === 'degraded') return 'Falls behind';
  if (state === 'down') return link.cut ? 'Cut' : link.id.startsWith('nodes:') ? 'All silent' : 'Down';
  if (state !== 'degraded') return null;
  if (link.id.startsWith('nodes:')) return 'Some silent';
  return link.breaker === 'half_open' ? 'Trying again' : 'Slow';
}

export interface Verdict {
  tone: Tone;
  text: string;
  /** The higher, the sooner somebody should look. */
  rank: number;
}

export function verdict(stages: Stage[], links: Link[]): Verdict {
  const down = links.filter((link) => shape(link) === 'down');
  if (down.length) return { tone: 'bad', text: down.every((link) => link.cut) ? 'Cut by a person' : 'A link is down', rank: 3 };
  if (stages.some((stage) => stage.state === 'broken')) return { tone: 'bad', text: 'Cannot send', rank: 3 };
  if (links.some(drains)) return { tone: 'held', text: 'Draining', rank: 2 };
  if (stages.some((stage) => stage.state === 'waiting')) return { tone: 'held', text: 'Data waits', rank: 2 };
  const slow = links.find((link) => link.state === 'degraded');
  if (slow) return { tone: 'held', text: trouble(slow) ?? 'Slow', rank: 2 };
  if ([...stages, ...links].some((one) => one.state === 'unknown')) return { tone: 'unknown', text: 'Not known', rank: 1 };
  return { tone: 'ok', text: 'Moving', rank: 0 };
}
