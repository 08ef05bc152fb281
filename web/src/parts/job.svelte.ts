// Work that the console does for us and that takes a while: its progress until it has ended.
import { ApiError, get } from '../api/client';
import type { Job } from '../api/types';

const EVERY_MS = 400;

export class Watched {
  job = $state.raw<Job | null>(null);
  failure = $state.raw<ApiError | null>(null);
  #stopped = false;

  constructor(id: string) {
    void this.#look(id);
  }

  stop() {
    this.#stopped = true;
  }

  async #look(id: string) {
    while (!this.#stopped) {
      try {
        this.job = await get('/api/v1/jobs/{id}', { id });
        this.failure = null;
        if (this.job.state !== 'running') return;
      } catch (failure) {
        this.failure = failure instanceof ApiError ? failure : new ApiError(0, 'unexpected', String(failure));
        // The console forgets jobs when it starts again; what it did is done.
        if (this.failure.status === 404) return;
      }
      await new Promise((done) => setTimeout(done, EVERY_MS));
    }
  }
}
