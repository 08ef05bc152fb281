// When a backlog is worth a word: something is always on its way, and is gone before it could be read.
import type { Link } from '../../api/types';

const WORTH_SAYING_S = 5;

export function drains(link: Link): boolean {
  return (link.drain_estimate_s ?? 0) > WORTH_SAYING_S;
}
