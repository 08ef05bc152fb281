// Where the page is: `#/view/part/part?name=value`. The part behind the hash never reaches a server, so it works from any folder and offline.
export interface Place {
  view: string;
  parts: string[];
  query: URLSearchParams;
}

function parse(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const parts = path.split('/').filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { view: parts[0] ?? 'flow', parts: parts.slice(1), query: new URLSearchParams(query) };
}

export function address(view: string, parts: string[] = [], query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== '') search.set(name, value);
  const path = [view, ...parts.map(encodeURIComponent)].join('/');
  return `#/${path}${search.size ? `?${search}` : ''}`;
}

class Router {
  place = $state.raw<Place>(parse(location.hash));

  constructor() {
    addEventListener('hashchange', () => (this.place = parse(location.hash)));
  }

  go(to: string) {
    location.hash = to;
  }

  /** Writes where we are without a new entry in the browser's history: for filters and plots that move. */
  rewrite(to: string) {
    history.replaceState(null, '', to);
    this.place = parse(to);
  }
}

export const router = new Router();
