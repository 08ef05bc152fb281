// In which order places are drawn: by the links between them, so that what comes from somewhere stands behind it.
import type { Link, Stage } from '../../api/types';

const KINDS = ['node', 'edge', 'cloud', 'bus', 'store'];
/** A kind that we do not know stands before the store, where everything ends. */
const rank = (stage: Stage) => (KINDS.includes(stage.kind) ? KINDS.indexOf(stage.kind) : KINDS.length - 1.5);

export function byKind(stages: Stage[]): Stage[] {
  return [...stages].sort((a, b) => rank(a) - rank(b));
}

/** Rows from the beginning to the end: nothing has a link to a row above it. Without links, places of a kind are a row. */
export function rows(stages: Stage[], links: Link[]): Stage[][] {
  const made: Stage[][] = [];
  let left = byKind(stages);
  const inside = links.filter((link) => left.some((stage) => stage.id === link.from) && left.some((stage) => stage.id === link.to));
  while (left.length) {
    const first = left[0]!;
    const waits = (stage: Stage) => inside.some((link) => link.to === stage.id && link.from !== stage.id && left.some((other) => other.id === link.from));
    const free = inside.length ? left.filter((stage) => !waits(stage)) : left.filter((stage) => stage.kind === first.kind);
    // Links that lead around in a circle have no beginning.
    const row = free.length ? free : left;
    made.push(row);
    left = left.filter((stage) => !row.includes(stage));
  }
  return made;
}
