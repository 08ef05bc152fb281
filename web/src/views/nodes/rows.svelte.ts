// The rows of the table of nodes: asked in pages by what is looked at, and kept current by what the stream says has changed.
import { ApiError, get } from '../../api/client';
import type { Values } from '../../api/document';
import type { NodeChanges, NodeRow } from '../../api/types';

export const PAGE = 500;
type Query = Values<'/api/v1/nodes', 'get'>;

export class NodeRows {
  total = $state<number | null>(null);
  failure = $state.raw<ApiError | null>(null);
  /** By place in the sorted list; not there: not asked yet. */
  rows = $state.raw<(NodeRow | undefined)[]>([]);
  #query: Query = {};
  #stop = new AbortController();
  #asking = new Set<number>();

  /** Another question: what was there goes as soon as the answer is here. */
  ask(query: Query) {
    this.#stop.abort();
    this.#stop = new AbortController();
    this.#asking.clear();
    this.#query = query;
    void this.#page(0, true);
  }

  /** Makes sure that these rows are there or on their way. */
  need(from: number, to: number) {
    if (this.total === null) return;
    for (let page = Math.floor(from / PAGE); page <= Math.floor(Math.min(to, this.total - 1) / PAGE); page++) {
      if (this.rows[page * PAGE] === undefined) void this.#page(page * PAGE, false);
    }
  }

  /** The same question again, for the order that changes as values do. */
  refresh(from: number, to: number) {
    for (let page = Math.floor(from / PAGE); page <= Math.floor(to / PAGE); page++) void this.#page(page * PAGE, false);
  }

  take(changes: NodeChanges) {
    const changed = new Map(changes.changed.map((row) => [`${row.site}/${row.node_id}`, row]));
    if (changed.size) this.rows = this.rows.map((row) => (row && changed.get(`${row.site}/${row.node_id}`)) || row);
  }

  async #page(offset: number, whole: boolean) {
    if (this.#asking.has(offset)) return;
    this.#asking.add(offset);
    const stop = this.#stop;
    try {
      const answer = await get('/api/v1/nodes', { ...this.#query, offset, limit: PAGE }, stop.signal);
      if (stop.signal.aborted) return;
      const next = whole || answer.total !== this.total ? new Array<NodeRow | undefined>(answer.total) : [...this.rows];
      answer.items.forEach((row, i) => (next[offset + i] = row));
      this.total = answer.total;
      this.rows = next;
      this.failure = null;
    } catch (failure) {
      if (!stop.signal.aborted) this.failure = failure instanceof ApiError ? failure : new ApiError(0, 'unexpected', String(failure));
    } finally {
      if (!stop.signal.aborted) this.#asking.delete(offset);
    }
  }
}
