// A question to the console that a view shows the answer of: asked again when what it depends on changes, and every so often when told to.
import { ApiError } from './client';

export class Answer<T> {
  /** The last good answer. It stays while a newer one is on its way, and when that fails. */
  data = $state.raw<T | null>(null);
  failure = $state.raw<ApiError | null>(null);
  waiting = $state(true);
  again: () => void = () => {};
}

type Question<T> = (signal: AbortSignal) => Promise<T>;

/**
 * Call it while a component is made. `what` is tracked: it reads what the question depends on and returns the question, or null for none.
 * `every` asks again so many milliseconds after an answer while the page is seen.
 */
export function ask<T>(what: () => Question<T> | null, every = 0): Answer<T> {
  const answer = new Answer<T>();
  $effect(() => {
    const question = what();
    if (!question) {
      answer.waiting = false;
      return;
    }
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let asking = false;
    const run = async () => {
      if (asking) return;
      asking = true;
      clearTimeout(timer);
      answer.waiting = true;
      try {
        const data = await question(stop.signal);
        if (stop.signal.aborted) return;
        answer.data = data;
        answer.failure = null;
      } catch (failure) {
        if (stop.signal.aborted) return;
        answer.failure = failure instanceof ApiError ? failure : new ApiError(0, 'unexpected', String(failure));
      } finally {
        asking = false;
        if (!stop.signal.aborted) {
          answer.waiting = false;
          // A question that failed is asked again even where a good answer would have been enough.
          const pause = answer.failure ? Math.max(every, 5_000) : every;
          if (pause) timer = setTimeout(tick, pause);
        }
      }
    };
    const tick = () => {
      if (document.hidden) timer = setTimeout(tick, 1_000);
      else void run();
    };
    answer.again = () => void run();
    void run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  });
  return answer;
}
