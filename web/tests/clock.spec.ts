// A computer whose clock is wrong: ages are those of the console's clock.
import { ask, expect, open, real, signIn, test } from './page';

interface Row {
  site: string;
  node_id: string;
  liveness: string;
  last_rx_at: string | null;
  rx_age_s: number | null;
}
/** More than a page's own rounding can hide, and what a laptop may be off by. */
const OFF_MS = 120_000;

/** What a page says of an age, in seconds: `now`, `12 s ago`, `1 h 31 min ago`. */
function seconds(said: string): number {
  if (/^now/.test(said)) return 0;
  const size = { d: 86_400, h: 3_600, min: 60, s: 1 };
  const parts = [...said.matchAll(/(\d+) (d|h|min|s)\b/g)];
  return parts.length ? parts.reduce((sum, [, n, unit]) => sum + Number(n) * size[unit as keyof typeof size], 0) : Number.NaN;
}

for (const [name, shift] of [['slow', -OFF_MS], ['fast', OFF_MS]] as const) {
  test(`a computer whose clock is two minutes ${name} shows the right ages`, async ({ page }) => {
    await page.clock.install({ time: Date.now() + shift });
    await signIn(page);
    expect(Math.abs((await page.evaluate(() => Date.now())) - Date.now() - shift), 'the page has a wrong clock').toBeLessThan(10_000);
    await expect(page.locator('[data-live]')).toBeVisible();
    await open(page, 'nodes');
    const { items } = await ask<{ items: Row[] }>(page, '/api/v1/nodes?limit=1000');
    // One that was heard a moment ago shows a clock that is fast; one that is silent for long shows one that is slow.
    const wanted = [items.find((one) => one.liveness === 'online'), items.find((one) => one.liveness === 'offline')];
    expect(wanted.filter(Boolean).length).toBeGreaterThanOrEqual(real ? 1 : 2);
    for (const row of wanted) {
      if (!row) continue;
      await open(page, `nodes/${row.site}/${row.node_id}`);
      const receipt = page.locator('dl.facts div', { hasText: 'Last receipt' }).locator('dd');
      // A minute is the least that `1 h 31 min` says.
      await expect(async () => {
        const said = seconds((await receipt.evaluate((dd) => dd.firstChild?.textContent)) ?? '');
        const { node } = await ask<{ node: Row }>(page, `/api/v1/nodes/${row.site}/${row.node_id}`);
        expect(Math.abs(said - node.rx_age_s!)).toBeLessThan(row.liveness === 'online' ? 10 : 65);
      }).toPass({ timeout: 10_000 });
    }
    // What follows now ends now, and not two minutes off.
    const asked = page.waitForRequest((request) => request.url().includes('/explore/points'));
    await open(page, 'explore');
    const to = Date.parse(new URL((await asked).url()).searchParams.get('to')!);
    expect(Math.abs(to - Date.now())).toBeLessThan(30_000);
  });
}
