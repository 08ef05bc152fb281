// That the page stays smooth with much behind it, said by what it does and not by how long it takes: `./dev bench page` has the times.
import { expect, number, open, real, signIn, test } from './page';

/** Whether a question is about weeks. */
const long = (url: string) => {
  const query = new URL(url).searchParams;
  return Date.parse(query.get('to')!) - Date.parse(query.get('from')!) > 25 * 86_400_000;
};
/** Rows that fit the list, and those kept ready beyond its edges. */
const MOST_ROWS = 60;
const MOST_ELEMENTS = 2_000;

test('of a thousand nodes only those that are looked at are in the document', async ({ page }) => {
  test.skip(real, 'the real system has a few nodes');
  await signIn(page);
  await open(page, 'nodes');
  await expect(page.locator('[data-total]')).toHaveText('1,000 nodes');
  const frame = page.getByRole('region', { name: 'Nodes' });
  for (const share of [0, 0.37, 0.5, 1]) {
    await frame.evaluate((one, to) => (one.scrollTop = (one.scrollHeight - one.clientHeight) * to), share);
    const nearest = Math.round(share * 999);
    // The rows around that place are drawn, with their names, and the others are not there.
    await expect.poll(() => page.locator('tr.node').evaluateAll((rows, at) => rows.some((row) => Math.abs(Number(row.getAttribute('data-at')) - at) < 20 && row.querySelector('a')), nearest)).toBe(true);
    expect(await page.locator('tr.node').count()).toBeLessThanOrEqual(MOST_ROWS);
    expect(await page.locator('*').count()).toBeLessThanOrEqual(MOST_ELEMENTS);
  }
});

test('pictures that come faster than frames change the page once a frame', async ({ page }) => {
  const PICTURES = 300;
  await signIn(page);
  const produced = page.locator('dl.totals div', { hasText: 'Produced' }).locator('dd');
  await expect(produced).toHaveText(/\d/);
  const picture = await page.evaluate(async () => (await fetch('/api/v1/picture')).json() as Promise<{ tick: number; totals: { produced: number } }>);
  const burst = Array.from({ length: PICTURES }, (_, i) => `event: picture\ndata: ${JSON.stringify({ ...picture, tick: picture.tick + 1000 + i, totals: { ...picture.totals, produced: 7_000_000_000 + i } })}\n\n`).join('');
  // One answer with all of them, and the next stream is the console's own again.
  await page.route('**/api/v1/stream', (route) => route.fulfill({ contentType: 'text/event-stream', body: burst }), { times: 1 });
  await page.addInitScript(() => {
    // The time of the document stands still within a frame.
    const changes: [number, string][] = [];
    (window as unknown as { changes: typeof changes }).changes = changes;
    new MutationObserver(() => {
      const said = document.querySelector('dl.totals div:nth-child(2) dd')?.firstChild?.textContent ?? '';
      if (said.startsWith('7,000,000,') && said !== changes.at(-1)?.[1]) changes.push([Number(document.timeline.currentTime), said]);
    }).observe(document, { subtree: true, childList: true, characterData: true });
  });
  await page.reload();
  await expect.poll(() => page.evaluate(() => (window as unknown as { changes: [number, string][] }).changes.at(-1)?.[1])).toBe(`7,000,000,${PICTURES - 1}`);
  const frames = await page.evaluate(() => (window as unknown as { changes: [number, string][] }).changes.map(([at]) => at));
  expect(new Set(frames).size, 'changes, each in a frame of its own').toBe(frames.length);
});

test('more changes than the stream names are asked for, and what it says is gone is gone', async ({ page }) => {
  await page.addInitScript(() => {
    // Of nodes the stream says what the test says and nothing else, the list's own look every ten seconds is left out, and the two seconds before it
    // asks again are over when the test says so: what is asked is asked because of what was said, on a slow computer too.
    const [Stream, every, after] = [EventSource, setInterval, setTimeout];
    const waits: (() => void)[] = [];
    window.EventSource = class extends Stream {
      constructor(url: string | URL) {
        super(url);
        Object.assign(window, { stream: this, waits });
      }
      override addEventListener(type: string, listener: (event: MessageEvent) => void) {
        super.addEventListener(type, type === 'nodes' ? (event: Event) => { if (!event.isTrusted) listener(event as MessageEvent); } : (listener as EventListener));
      }
    };
    window.setInterval = ((call: () => void, ms: number) => (ms === 10_000 ? 0 : every(call, ms))) as typeof setInterval;
    window.setTimeout = ((call: () => void, ms: number) => (ms === 2_000 ? -waits.push(call) : after(call, ms))) as typeof setTimeout;
  });
  await signIn(page);
  await open(page, 'nodes');
  const first = page.locator('tr.node').first();
  await expect(first.locator('a')).toBeVisible();
  const say = (changes: object) => page.evaluate((data) => (window as unknown as { stream: EventSource }).stream.dispatchEvent(new MessageEvent('nodes', { data })), JSON.stringify({ at: new Date().toISOString(), changed: [], removed: [], more: 0, ...changes }));
  /** The two seconds are over: how many looks had waited for it. */
  const later = () => page.evaluate(() => (window as unknown as { waits: (() => void)[] }).waits.splice(0).map((call) => call()).length);
  // Every later answer has another number of what the first node holds.
  let asked = 0;
  let gone = '';
  let answers = Promise.resolve();
  await page.route('**/api/v1/nodes?*', async (route) => {
    await answers;
    const answer = (await (await route.fetch()).json()) as { total: number; offset: number; items: { site: string; node_id: string; backlog: number }[] };
    asked += 1;
    const items = answer.items.filter((one) => `${one.site}/${one.node_id}` !== gone).map((one) => ({ ...one, backlog: 770_000 + asked }));
    await route.fulfill({ json: { ...answer, total: answer.total - (answer.items.length - items.length), items } });
  });
  await say({ more: 3 });
  expect(await later()).toBe(1);
  await expect(first).toContainText('770,001');
  // Said more often, it is asked once when the two seconds are over.
  for (let i = 0; i < 5; i++) await say({ more: 3 });
  expect(asked).toBe(1);
  expect(await later()).toBe(1);
  await expect(first).toContainText('770,002');
  expect(asked).toBe(2);

  const name = (await first.locator('a').textContent())!;
  const site = (await first.locator('th .soft').textContent())!;
  const total = number(await page.locator('[data-total]').textContent());
  gone = `${site}/${name}`;
  // It is gone before anybody answers.
  let answer = () => {};
  answers = new Promise((done) => (answer = done));
  await say({ removed: [gone] });
  await expect(page.locator('[data-total]')).toContainText(`${(total - 1).toLocaleString('en-GB')} node`);
  await expect(page.locator('tr.node', { hasText: new RegExp(`^${name} ${site}`) })).toHaveCount(0);
  expect(await later()).toBe(1);
  answer();
  await expect(first).toContainText('770,003');
  await expect(page.locator('[data-total]')).toContainText(`${(total - 1).toLocaleString('en-GB')} node`);
});

test('a plot holds no more points than the console’s limit, however much it shows', async ({ page }) => {
  test.slow();
  await signIn(page);
  await open(page, 'explore');
  const plot = page.locator('.plot[data-points]');
  await expect(plot).toBeVisible();
  const answered = page.waitForResponse((reply) => reply.url().includes('/explore/points') && long(reply.url()));
  await page.getByRole('button', { name: '30 d', exact: true }).click();
  const answer = (await (await answered).json()) as { width: number; series: { samples: number; t: number[]; gaps: unknown[] }[] };
  expect(answer.width).toBeLessThanOrEqual(4_000);
  const [series] = answer.series;
  if (!real) expect(series!.samples).toBeGreaterThan(1_000_000);
  const most = 2 * answer.width + series!.gaps.length;
  expect(series!.t.length).toBeLessThanOrEqual(most);
  // A system that has just begun makes its first hour in a while: then it is asked again.
  await expect(async () => {
    if (real) {
      await page.getByRole('button', { name: '1 h', exact: true }).click();
      await page.getByRole('button', { name: '30 d', exact: true }).click();
    }
    await expect(page.locator('.about')).toContainText(/30 d shown: [\d,]+ readings as [\d,]+ points/, { timeout: 5_000 });
  }).toPass({ timeout: 120_000 });
  const drawn = number(/as ([\d,]+) points/.exec((await page.locator('.about').textContent())!)![1]!);
  expect(drawn).toBeLessThanOrEqual(most);
  // What is drawn is what was said; the newest reading may come between the two looks.
  const held = Number(await plot.getAttribute('data-points'));
  expect(held).toBeGreaterThan(0);
  expect(held).toBeLessThanOrEqual(most);
});
