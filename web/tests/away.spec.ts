// A console that does not answer: the page says since when, and comes back by itself.
import { connect, type Cable } from './cable';
import { expect, signIn, test as base } from './page';

/** A cable of our own between the page and the console: an open stream ends only when its connection does. */
const test = base.extend<{ cable: Cable }>({
  cable: async ({ page, watched, baseURL }, use) => {
    const cable = await connect(new URL(baseURL!));
    watched.allow(new RegExp(`another host: http://127.0.0.1:${cable.port}/`));
    watched.allow(/ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE/);
    await page.clock.install();
    await signIn(page, undefined, `http://127.0.0.1:${cable.port}/`);
    await expect(page.locator('[data-live]')).toBeVisible();
    await use(cable);
    await cable.cut();
  },
});

test('the page says since when it is stale, and comes back by itself', async ({ page, cable }) => {
  await cable.cut();
  await expect(page.locator('.stale')).toContainText('Stale since');
  await cable.restore();
  await expect(page.locator('.stale')).toHaveCount(0);
  await expect(page.locator('[data-live]')).toBeVisible();
});

test('connections on which nothing is ever said are given up', async ({ page, cable }) => {
  test.setTimeout(120_000);
  // First the question who we are hangs, then the stream: each is seen to be given up.
  const asked = page.waitForEvent('requestfailed', { predicate: (one) => one.url().endsWith('/api/v1/me'), timeout: 40_000 });
  const streamed = page.waitForEvent('requestfailed', { predicate: (one) => one.url().endsWith('/api/v1/stream') && /ABORTED/.test(one.failure()?.errorText ?? ''), timeout: 60_000 });
  await cable.hang();
  await expect(page.locator('.stale')).toBeVisible();
  await asked;
  await streamed;
  await cable.restore();
  await expect(page.locator('[data-live]')).toBeVisible({ timeout: 60_000 });
});

test('a network that is back is used at once', async ({ page, cable }) => {
  await cable.cut();
  await expect(page.locator('.stale')).toBeVisible();
  // From here the page's timers stand still: nothing happens because time passes.
  await page.clock.pauseAt(Date.now() + 1_000);
  await page.evaluate(() => fetch('/api/v1/me').catch(() => null));
  await cable.restore();
  let opened = 0;
  page.on('request', (one) => void (opened += Number(one.url().endsWith('/api/v1/stream'))));
  await page.evaluate(() => fetch('/api/v1/me'));
  expect(opened, 'by itself').toBe(0);
  await page.evaluate(() => dispatchEvent(new Event('online')));
  await expect.poll(() => opened).toBe(1);
});
