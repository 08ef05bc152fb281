// What is read out to who does not see the page: states that change, and never numbers that change each second.
import type { Page } from '@playwright/test';
import { connect } from './cable';
import { expect, open, real, signIn, test, views } from './page';

const REGIONS = '[role="status"], [role="alert"], [aria-live]:not([aria-live="off"])';

/** From now on, every text that a region has had, one line for each region with more than one. */
async function listen(page: Page) {
  await page.evaluate((regions) => {
    const said = new Map<Element, Set<string>>();
    const note = () => document.querySelectorAll(regions).forEach((one) => said.set(one, (said.get(one) ?? new Set()).add((one.textContent ?? '').trim())));
    note();
    const watch = new MutationObserver(note);
    watch.observe(document.body, { subtree: true, childList: true, characterData: true });
    Object.assign(window, { heard: () => (watch.disconnect(), [...said.values()].filter((texts) => texts.size > 1).map((texts) => [...texts].join(' | '))) });
  }, REGIONS);
  return () => page.evaluate(() => (window as unknown as { heard: () => string[] }).heard());
}

/** Until the numbers of a page have changed so many times. */
async function changes(page: Page, what: string, times: number) {
  let before = await page.locator(what).textContent();
  for (let i = 0; i < times; i++) {
    await expect(page.locator(what)).not.toHaveText(before!);
    before = await page.locator(what).textContent();
  }
}

test('while only numbers change nothing is read out, in any view', async ({ page }) => {
  test.setTimeout(180_000);
  await signIn(page);
  await expect(page.locator('[data-told]')).toHaveText(/./);
  for (const view of [...(await views(page)), 'nodes?liveness=online', 'alarms?show=all']) {
    await open(page, view);
    if (view === 'explore') await expect(page.locator('.about')).toContainText('readings as');
    const heard = await listen(page);
    await changes(page, '[data-live] .clock', 3);
    // Of a real system the state itself may change meanwhile; that is said, without a number.
    const texts = await heard();
    expect(real ? texts.filter((text) => /\d{2}/.test(text)) : texts, view).toEqual([]);
  }
});

test('that the console is away is said once, while its age grows', async ({ page, watched, baseURL }) => {
  const cable = await connect(new URL(baseURL!));
  watched.allow(new RegExp(`another host: http://127.0.0.1:${cable.port}/`));
  watched.allow(/ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_EMPTY_RESPONSE/);
  try {
    await signIn(page, undefined, `http://127.0.0.1:${cable.port}/`);
    await expect(page.locator('[data-live]')).toBeVisible();
    await expect(page.locator('[data-told]')).toHaveText(/./);
    await cable.cut();
    await expect(page.getByRole('alert')).toContainText('The console does not answer.');
    const heard = await listen(page);
    await changes(page, '.stale', 4);
    expect(await heard()).toEqual([]);
  } finally {
    await cable.cut();
  }
});

test('of work that goes on the end is read out, not each step', async ({ page }) => {
  await signIn(page);
  await open(page, 'conservation');
  // From before it begins: a small system is through in a moment.
  const heard = await listen(page);
  await page.getByRole('button', { name: /^Verify/ }).click();
  await expect(page.locator('[data-verify]')).toBeVisible();
  const texts = await heard();
  for (const text of texts) expect(text.split(' | ').filter(Boolean).length, text).toBe(1);
  expect(texts.join(' ')).toMatch(/Both hold the same|wrong/);
});
