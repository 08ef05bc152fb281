// Mouse, touch and pen on a plot: drag moves, wheel and two fingers zoom, Shift and drag chooses a stretch. Vertical touches go on scrolling the page.
import { move, pinch, zoom, type Range } from './range';

export interface Gestures {
  range: () => Range;
  change: (range: Range) => void;
  /** The stretch that is being chosen, as shares of the width; null when none is. */
  choose: (from: number | null, to: number | null) => void;
}

export function listen(over: HTMLElement, on: Gestures): () => void {
  const pointers = new Map<number, number>();
  let start: Range | null = null;
  let then: [number, number] = [0, 1];
  let choosing: number | null = null;

  const share = (event: PointerEvent | WheelEvent) => {
    const box = over.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const both = (): [number, number] => {
    const all = [...pointers.values()];
    return [all[0] ?? 0, all[1] ?? 1];
  };

  const down = (event: PointerEvent) => {
    if (event.button !== 0 || pointers.size === 2) return;
    pointers.set(event.pointerId, share(event));
    // Not every pointer can be captured (one that is gone already cannot); moving works without.
    try {
      over.setPointerCapture(event.pointerId);
    } catch {
      // See above.
    }
    start = on.range();
    then = both();
    choosing = event.shiftKey && pointers.size === 1 ? share(event) : null;
  };
  const moved = (event: PointerEvent) => {
    if (!pointers.has(event.pointerId) || !start) return;
    pointers.set(event.pointerId, share(event));
    if (choosing !== null) on.choose(choosing, share(event));
    else if (pointers.size === 2) on.change(pinch(start, then, both()));
    else on.change(move(start, then[0] - both()[0]));
  };
  const up = (event: PointerEvent) => {
    if (!pointers.delete(event.pointerId)) return;
    if (choosing !== null && start) {
      const [a, b] = [choosing, share(event)].sort((x, y) => x - y) as [number, number];
      const wide = start.to - start.from;
      on.choose(null, null);
      choosing = null;
      if (b - a > 0.01) on.change({ from: start.from + wide * a, to: start.from + wide * b });
    }
    // The finger that stays goes on from here.
    start = pointers.size ? on.range() : null;
    then = both();
  };
  const wheel = (event: WheelEvent) => {
    event.preventDefault();
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (sideways) on.change(move(on.range(), Math.sign(event.deltaX) * Math.min(0.2, Math.abs(event.deltaX) / 800)));
    else on.change(zoom(on.range(), Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY / 300))), share(event)));
  };
  const twice = (event: MouseEvent) => on.change(zoom(on.range(), event.shiftKey ? 2 : 0.5, share(event as PointerEvent)));

  over.style.touchAction = 'pan-y';
  over.style.cursor = 'grab';
  over.addEventListener('pointerdown', down);
  over.addEventListener('pointermove', moved);
  over.addEventListener('pointerup', up);
  over.addEventListener('pointercancel', up);
  over.addEventListener('wheel', wheel, { passive: false });
  over.addEventListener('dblclick', twice);
  return () => {
    over.removeEventListener('pointerdown', down);
    over.removeEventListener('pointermove', moved);
    over.removeEventListener('pointerup', up);
    over.removeEventListener('pointercancel', up);
    over.removeEventListener('wheel', wheel);
    over.removeEventListener('dblclick', twice);
  };
}
