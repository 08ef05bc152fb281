// The picture that the console sends once a second, and its last ten minutes. When it stops coming the page says since when, and tries again.
// However fast messages come, the page changes at most once a frame: what came meanwhile is taken together.
import { get } from './api/client';
import type { NodeChanges, Picture } from './api/types';
import { session } from './session.svelte';

/** A picture comes every second: after so long without one, what is shown is old. */
const STALE_AFTER_MS = 4_000;
const LONGEST_PAUSE_MS = 15_000;
const TICKS_KEPT = 600;
/** Ten minutes on the width of a card move by less than a pixel a second: with many cards their lines are drawn less often. */
const MANY_TRACKS = 40;
const MANY_EVERY = 5;
/** So much may wait for a frame. A window that is covered may have none for long, and then it is taken without one. */
const MOST_WAITING = 1_000;

export interface Track {
  rate: (number | null)[];
  held: (number | null)[];
}

type OnNodes = (changes: NodeChanges) => void;

class Live {
  picture = $state.raw<Picture | null>(null);
  /** Rate and held of each stage and link, oldest first. */
  tracks = $state.raw<Map<string, Track>>(new Map());
  /** The time of this computer, once a second, for ages that grow. */
  now = $state(Date.now());
  heardAt = $state<number | null>(null);
  stale = $derived(this.heardAt !== null && this.now - this.heardAt > STALE_AFTER_MS);

  #source: EventSource | null = null;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #pause = 1_000;
  #clock: ReturnType<typeof setInterval> | undefined;
  #onNodes = new Set<OnNodes>();
  #openedAt = 0;
  #kept = new Map<string, Track>();
  #waiting: Picture[] = [];
  #changes: NodeChanges[] = [];
  #frame = 0;

  start() {
    this.stop();
    this.#clock = setInterval(() => this.#tick(), 1_000);
    this.#open();
    void this.#history();
  }

  stop() {
    clearTimeout(this.#retry);
    clearInterval(this.#clock);
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#waiting = [];
    this.#changes = [];
    this.#source?.close();
    this.#source = null;
    this.picture = null;
    this.heardAt = null;
    this.tracks = new Map();
    this.#kept = new Map();
  }

  /** Calls back for every change of nodes until the returned function is called. */
  nodes(call: OnNodes): () => void {
    this.#onNodes.add(call);
    return () => this.#onNodes.delete(call);
  }

  #open() {
    this.#source?.close();
    this.#openedAt = Date.now();
    const source = new EventSource('/api/v1/stream');
    this.#source = source;
    source.addEventListener('picture', (event) => {
      this.#waiting.push(JSON.parse((event as MessageEvent<string>).data) as Picture);
      this.#soon();
    });
    source.addEventListener('nodes', (event) => {
      this.#changes.push(JSON.parse((event as MessageEvent<string>).data) as NodeChanges);
      this.#soon();
    });
    source.addEventListener('bye', () => {
      source.close();
      void session.look();
    });
    source.onerror = () => this.#again(source);
  }

  // The browser's own attempts end when an answer is not a stream (a restart behind a proxy, a session that is over), so we make them.
  #again(source: EventSource) {
    if (source !== this.#source) return;
    source.close();
    clearTimeout(this.#retry);
    this.#retry = setTimeout(async () => {
      await session.look();
      if (session.state !== 'out' && source === this.#source) this.#open();
    }, this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
  }

  #tick() {
    this.now = Date.now();
    // A connection can die without a word: open a new one when nothing came for long.
    const source = this.#source;
    const quiet = this.now - Math.max(this.heardAt ?? 0, this.#openedAt);
    if (source && source.readyState === EventSource.OPEN && quiet > 20_000) this.#again(source);
  }

  /** Takes what came at the next frame. A page that nobody sees has no frames. */
  #soon() {
    if (document.hidden || this.#waiting.length + this.#changes.length > MOST_WAITING) this.#take();
    else this.#frame ||= requestAnimationFrame(() => this.#take());
  }

  #take() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const [pictures, changes] = [this.#waiting, this.#changes];
    this.#waiting = [];
    this.#changes = [];
    for (const one of changes) for (const call of this.#onNodes) call(one);
    const newest = pictures.at(-1);
    if (!newest) return;
    const reconnected = this.stale;
    this.#pause = 1_000;
    this.heardAt = Date.now();
    this.now = this.heardAt;
    let drawn = false;
    for (const picture of pictures) {
      const repeated = this.picture?.tick === picture.tick;
      this.picture = picture;
      if (!repeated) drawn = this.#keep(picture) || drawn;
    }
    if (drawn) this.#draw();
    if (reconnected) void this.#history();
  }

  /** Puts a picture at the end of the tracks; whether they are to be drawn for it. */
  #keep(picture: Picture): boolean {
    const next = new Map<string, Track>();
    for (const one of [...picture.flow.stages, ...picture.flow.links]) {
      const track = this.#kept.get(one.id) ?? { rate: [], held: [] };
      track.rate.push(one.rate_per_s);
      track.held.push(one.held);
      if (track.rate.length > TICKS_KEPT) {
        track.rate.shift();
        track.held.shift();
      }
      next.set(one.id, track);
    }
    this.#kept = next;
    return next.size <= MANY_TRACKS || picture.tick % MANY_EVERY === 0;
  }

  #draw() {
    this.tracks = new Map([...this.#kept].map(([id, track]) => [id, { rate: [...track.rate], held: [...track.held] }]));
  }

  async #history() {
    try {
      const history = await get('/api/v1/flow/history', { seconds: TICKS_KEPT });
      this.#kept = new Map(history.series.map((one) => [one.id, { rate: one.rate_per_s, held: one.held }]));
      this.#draw();
    } catch {
      // Without its past the picture still moves: the lines grow from now.
    }
  }
}

export const live = new Live();
