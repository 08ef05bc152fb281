// Short messages about what a person just did. One live region reads them out.
import type { Tone } from './parts/Mark.svelte';

export interface Notice {
  id: number;
  text: string;
  tone: Tone;
}

const MOST = 3;
const STAYS_MS = 7_000;

class Notices {
  list = $state.raw<Notice[]>([]);
  #next = 1;

  say(text: string, tone: Tone = 'ok') {
    const notice = { id: this.#next++, text, tone };
    // The same words twice would only cover the page.
    this.list = [...this.list.filter((one) => one.text !== text), notice].slice(-MOST);
    setTimeout(() => this.drop(notice.id), STAYS_MS);
  }

  drop(id: number) {
    this.list = this.list.filter((one) => one.id !== id);
  }
}

export const notices = new Notices();
