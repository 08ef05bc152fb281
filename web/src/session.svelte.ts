// Who is signed in, and what they may do. The token is given once and never kept here: the cookie is out of the page's reach.
import { get, post, whenSignedOut, ApiError } from './api/client';
import type { Me, View } from './api/types';

/** Who we are is known to the console itself: an answer that takes longer does not come. */
const LOOK_WITHIN_MS = 8_000;

class Session {
  me = $state.raw<Me | null>(null);
  /** `asking` until the console has said who we are. */
  state = $state<'asking' | 'in' | 'out' | 'unreachable'>('asking');
  /** Said on the sign-in page when a session ended by itself. */
  ended = $state(false);

  whyNot = $derived(this.me && !this.me.can_act ? 'You are signed in as a viewer: viewers look and do not act.' : null);

  constructor() {
    whenSignedOut(() => {
      if (this.state === 'in') this.ended = true;
      this.me = null;
      this.state = 'out';
    });
  }

  async look() {
    try {
      this.me = await get('/api/v1/me', {}, AbortSignal.timeout(LOOK_WITHIN_MS));
      this.state = 'in';
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 401) return;
      this.state = 'unreachable';
    }
  }

  async signIn(token: string) {
    this.me = await post('/api/v1/sign-in', {}, { token });
    this.ended = false;
    this.state = 'in';
  }

  async signOut() {
    await post('/api/v1/sign-out', {});
    this.me = null;
    this.state = 'out';
  }

  sees(view: string): boolean {
    return this.me?.views.includes(view as View) ?? false;
  }
}

export const session = new Session();
