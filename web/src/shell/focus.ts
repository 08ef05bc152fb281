// What has the focus may go away: an alarm that was acknowledged leaves its list, a button becomes another one, a dialog's opener is gone. The
// browser then puts the focus on nothing, and who uses the keyboard begins at the top of the page. Here it goes to what stands in its place.

const REACHABLE = 'a[href], button:not([disabled]), input:not([disabled]), select:not([disabled]), [tabindex="0"]';

/** An element on the way up from what has the focus, and what stood beside it. */
interface Step {
  element: Element;
  next: Element | null;
  previous: Element | null;
}
/** What had the focus last, and how it was called. */
interface Trail {
  steps: Step[];
  name: string;
}

const nameOf = (element: Element) => (element.getAttribute('aria-label') ?? element.textContent ?? '').trim().split(/\s/, 1)[0] ?? '';

function trailOf(element: Element): Trail {
  const steps: Step[] = [];
  for (let one: Element | null = element; one && one !== document.body; one = one.parentElement) {
    steps.push({ element: one, next: one.nextElementSibling, previous: one.previousElementSibling });
  }
  return { steps, name: nameOf(element) };
}

/** Inside a place, what is called as what is gone was; else the first that can be reached. */
function within(place: Element | null, name: string): HTMLElement | null {
  if (!place?.isConnected) return null;
  const all = place.matches(REACHABLE) ? [place] : [...place.querySelectorAll(REACHABLE)];
  return (all.find((one) => nameOf(one) === name) ?? all[0] ?? null) as HTMLElement | null;
}

function standsInPlace({ steps, name }: Trail): HTMLElement | null {
  const gone = steps.findLastIndex((step) => !step.element.isConnected);
  for (const step of steps.slice(Math.max(gone, 0))) {
    const found = within(step.next, name) ?? within(step.previous, name) ?? within(step.element.isConnected ? step.element : null, name);
    if (found) return found;
  }
  return null;
}

/** Keeps the focus on the page until the returned function is called. A dialog and the page behind it are kept apart. */
export function keepFocus(page: HTMLElement): () => void {
  const trails = new WeakMap<Element, Trail>();
  const rootOf = (element: Element) => element.closest('dialog') ?? document.documentElement;
  const remember = ({ target }: FocusEvent) => {
    if (target instanceof Element) trails.set(rootOf(target), trailOf(target));
  };
  const mend = () => {
    if (document.activeElement !== document.body && document.activeElement !== null) return;
    const root = document.querySelector('dialog[open]') ?? document.documentElement;
    const trail = trails.get(root);
    if (!trail || trail.steps[0]?.element.isConnected !== false) return;
    trails.delete(root);
    (standsInPlace(trail) ?? page).focus({ preventScroll: true });
  };
  const observer = new MutationObserver(mend);
  observer.observe(document.body, { childList: true, subtree: true });
  document.addEventListener('focusin', remember);
  return () => {
    observer.disconnect();
    document.removeEventListener('focusin', remember);
  };
}
