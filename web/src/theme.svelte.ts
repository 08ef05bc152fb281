// Light or dark: the system's setting until somebody chooses. `public/theme.js` does the same before the first paint.
const KEY = 'holdfast.theme';
export type Theme = 'light' | 'dark';

const system = matchMedia('(prefers-color-scheme: dark)');

function read(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : null;
  } catch {
    return null;
  }
}

class ThemeChoice {
  #chosen = $state<Theme | null>(read());
  #dark = $state(system.matches);
  current: Theme = $derived(this.#chosen ?? (this.#dark ? 'dark' : 'light'));

  constructor() {
    system.addEventListener('change', (change) => {
      this.#dark = change.matches;
      this.#apply();
    });
  }

  flip() {
    const next: Theme = this.current === 'dark' ? 'light' : 'dark';
    // Choosing what the system says is no choice: the page follows the system again.
    this.#chosen = next === (this.#dark ? 'dark' : 'light') ? null : next;
    try {
      if (this.#chosen) localStorage.setItem(KEY, this.#chosen);
      else localStorage.removeItem(KEY);
    } catch {
      // Storage is shut off: the choice lasts as long as the page.
    }
    this.#apply();
  }

  #apply() {
    document.documentElement.dataset.theme = this.current;
  }
}

export const theme = new ThemeChoice();
