// The picture that the console sends once a second, and its last ten minutes. When it stops coming the page says since when, and tries again.
// However fast messages come, the page changes at most once a frame: what came meanwhile is taken together.
import { get } from './api/client';
import type { NodeChanges, Picture } from './api/types';
import { session } from './session.svelte';

/** A picture comes every second: after so long without one, what is shown is old. */
const STALE_AFTER_MS = 4_000;
const LONGEST_PAUSE_MS = 15_000;
/** A connection can die without a word, or never become one: after so long without a picture a new one is made. */
const DEAD_AFTER_MS = 10_000;
/** A browser has six connections for one console, and a stream is one of them: a page that nobody sees gives its own back after a while, and asks. */
const HIDDEN_AFTER_MS = 5_000;
const HIDDEN_EVERY_MS = 15_000;
const TICKS_KEPT = 600;
/** Ten minutes on the width of a card move by less than a pixel a second: with many cards their lines are drawn less often. */
const MANY_TRACKS = 20;
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
  /** Rate and held of each stage, oldest first. */
  tracks = $state.raw<Map<string, Track>>(new Map());
  /** The time of this computer, once a second. */
  #here = $state(Date.now());
  /** By how much the console's clock is ahead of this computer's. Times come from there, and a computer's own clock may be minutes off. */
  #ahead = $state(0);
  /** The time at the console, once a second, for every age that grows: the one clock that views count by. */
  now = $derived(this.#here + this.#ahead);
  /** When the last picture came, by this computer's clock. */
  #heard = $state<number | null>(null);
  /** The same, by the console's clock. */
  heardAt = $derived(this.#heard === null ? null : this.#heard + this.#ahead);
  /** How long ago that was. */
  quietFor = $derived(this.#heard === null ? 0 : this.#here - this.#heard);
  stale = $derived(this.quietFor > STALE_AFTER_MS);

  #source: EventSource | null = null;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #pause = 1_000;
  #clock: ReturnType<typeof setInterval> | undefined;
  #onNodes = new Set<OnNodes>();
  #openedAt = 0;
  #hidden: ReturnType<typeof setTimeout> | undefined;
  #kept = new Map<string, Track>();
  #waiting: Picture[] = [];
  #changes: NodeChanges[] = [];
  #frame = 0;

  start() {
    this.stop();
    this.#clock = setInterval(() => this.#tick(), 1_000);
    document.addEventListener('visibilitychange', this.#turn);
    addEventListener('online', this.#online);
    this.#open();
    void this.#history();
    this.#turn();
  }

  stop() {
    document.removeEventListener('visibilitychange', this.#turn);
    removeEventListener('online', this.#online);
    clearTimeout(this.#hidden);
    clearTimeout(this.#retry);
    clearInterval(this.#clock);
    this.#clock = undefined;
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#waiting = [];
    this.#changes = [];
    this.#source?.close();
    this.#source = null;
    this.picture = null;
    this.#heard = null;
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
      const picture = JSON.parse((event as MessageEvent<string>).data) as Picture;
      this.#ahead = Date.parse(picture.at) - Date.now();
      this.#waiting.push(picture);
      this.#soon();
    });
    source.addEventListener('nodes', (event) => {
      this.#changes.push(JSON.parse((event as MessageEvent<string>).data) as NodeChanges);
      this.#soon();
    });
    // The console has ended the session, or itself: a look says which.
    source.addEventListener('bye', () => this.#again(source));
    source.onerror = () => this.#again(source);
  }

  /** A page that is seen has a stream, one that is hidden for a while has none. */
  #turn = () => {
    clearTimeout(this.#hidden);
    if (document.hidden) {
      this.#hidden = setTimeout(() => this.#look(), HIDDEN_AFTER_MS);
    } else if (!this.#source) {
      this.#open();
      void this.#history();
    }
  };

  /** One picture now and then, without a connection that stays: the title of a hidden tab goes on telling the truth. */
  async #look() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
    try {
      const picture = await get('/api/v1/picture');
      if (!document.hidden || !this.#clock) return;
      this.picture = picture;
      this.#ahead = Date.parse(picture.at) - Date.now();
      this.#heard = Date.now();
    } catch {
      // The next look says more; when the page is seen again it says since when nothing came.
    }
    if (document.hidden && this.#clock) this.#hidden = setTimeout(() => void this.#look(), HIDDEN_EVERY_MS);
  }

  // The browser's own attempts end when an answer is not a stream (a restart behind a proxy, a session that is over), so we make them.
  #again(source: EventSource) {
    if (source !== this.#source) return;
    source.close();
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.#reopen(source), this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
  }

  async #reopen(source: EventSource) {
    await session.look();
    if (session.state !== 'out' && source === this.#source) this.#open();
  }

  /** A network that is back is not waited for any longer. */
  #online = () => {
    const source = this.#source;
    if (!source || (source.readyState === EventSource.OPEN && !this.stale)) return;
    source.close();
    clearTimeout(this.#retry);
    this.#pause = 1_000;
    void this.#reopen(source);
  };

  #tick() {
    this.#here = Date.now();
    const source = this.#source;
    const quiet = this.#here - Math.max(this.#heard ?? 0, this.#openedAt);
    // One that is closed has an attempt of its own ahead.
    if (source && source.readyState !== EventSource.CLOSED && quiet > DEAD_AFTER_MS) this.#again(source);
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
    this.#heard = Date.now();
    this.#here = this.#heard;
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
    // Of places alone: a link may be called as the place it leads to, and has no line of its own.
    for (const one of picture.flow.stages) {
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
