import { check } from './axe';
import type { Locator, Page } from '@playwright/test';
import { alarms, oneThatStays } from './alarm';
import { giveUp } from './letters';
import { expect, open, operator, real, signIn, test, views } from './page';

/** Opens each kind of dialog, the picker and the page of a session, and calls back while it is open. Each must be there; a real plant alone may have no alarm now. */
async function dialogs(page: Page, look: (name: string) => Promise<void>) {
  const opener = async (view: string, button: Locator) => {
    await open(page, view);
    if (real && view === 'alarms' && (await button.count()) === 0) return;
    await button.first().click();
    await expect(page.getByRole('dialog')).toBeVisible();
    await look(`a dialog of ${view}`);
    await page.keyboard.press('Escape');
    await expect(page.getByRole('dialog')).toHaveCount(0);
  };
  await opener('alarms', page.getByRole('button', { name: /^Shelve/ }));
  await opener('queues', page.getByRole('button', { name: /^Redrive/ }));
  await open(page, 'explore');
  await page.getByLabel('Search series').click();
  await expect(page.locator('.picker .list input').first()).toBeVisible();
  await look('the picker of series');
  await open(page, 'sessions');
  await page.locator('tr[data-session] a').first().click();
  await expect(page.locator('#main dl').first()).toBeVisible();
  await look('one session');
}

for (const theme of ['light', 'dark'] as const) {
  for (const width of [1280, 390]) {
    test(`axe finds nothing, ${theme}, ${width} pixels wide`, async ({ page }) => {
      test.setTimeout(180_000);
      await page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
      await page.setViewportSize({ width, height: 844 });
      await page.goto('/');
      await expect(page.getByLabel('Token')).toBeVisible();
      expect.soft(await check(page), 'sign-in').toEqual([]);
      await signIn(page);
      await giveUp(page);
      for (const view of await views(page)) {
        await open(page, view);
        expect.soft(await check(page), view).toEqual([]);
      }
      await open(page, 'nodes');
      await page.locator('tr.node a').first().click();
      await expect(page.locator('.uplot canvas').first()).toBeVisible();
      expect.soft(await check(page), 'one node').toEqual([]);
      await dialogs(page, async (name) => expect.soft(await check(page), name).toEqual([]));
    });
  }
}

test('nothing is wider than a narrow screen', async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await signIn(page);
  for (const view of await views(page)) {
    await open(page, view);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide, view).toBeLessThanOrEqual(390);
  }
  for (const [list, first] of [['nodes', 'tr.node a'], ['sessions', 'tr[data-session] a']] as const) {
    await open(page, list);
    await page.locator(first).first().click();
    await expect(page.locator('#main dl').first()).toBeVisible();
    expect(await page.evaluate(() => document.documentElement.scrollWidth), `one of ${list}`).toBeLessThanOrEqual(390);
  }
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('dialog').getByRole('link', { name: /^Conservation/ }).click();
  await expect(page.locator('#main h1')).toHaveText('Conservation');
  await expect(page.getByRole('dialog')).toHaveCount(0);
});

/** Two keys, one soon after the other. A computer that has too much to do may be too slow for it once; a person tries again. */
async function go(page: Page, key: string, view: string) {
  await expect(async () => {
    await page.keyboard.press('g');
    await page.keyboard.press(key);
    await expect(page.locator('#main h1')).toHaveText(view, { timeout: 3_000 });
  }).toPass();
}

test('the page is used without a mouse', async ({ page }) => {
  await page.goto('/');
  await expect(page.getByLabel('Token')).toBeFocused();
  await page.keyboard.type(operator);
  await page.keyboard.press('Enter');
  await expect(page.locator('#main h1')).toHaveText('Flow');
  await page.evaluate(() => (document.activeElement as HTMLElement | null)?.blur());
  await page.keyboard.press('Tab');
  await expect(page.getByRole('link', { name: 'Skip to content' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.locator('main')).toBeFocused();
  await page.keyboard.press('?');
  await expect(page.getByRole('dialog')).toContainText('Keyboard');
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await go(page, 'n', 'Nodes');
  await expect(page.locator('tr.node a').first()).toBeVisible();
  await page.getByRole('region', { name: 'Nodes' }).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const name = await page.evaluate(() => document.activeElement?.textContent);
  await page.keyboard.press('Enter');
  await expect(page.locator('#main h1')).toContainText(name!);
  // Every place that has the focus shows it.
  await go(page, 'q', 'Queues');
  let places = 0;
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press('Tab');
    const seen = await page.evaluate(() => {
      if (!document.activeElement || document.activeElement === document.body) return null;
      const style = getComputedStyle(document.activeElement);
      return style.outlineStyle !== 'none' && Number.parseFloat(style.outlineWidth) >= 2;
    });
    expect(seen).not.toBe(false);
    if (seen) places += 1;
  }
  // Once around, the page itself is between its end and its beginning.
  expect(places).toBeGreaterThan(9);
});

/** Presses Tab until something that is called so has the focus. */
async function tabTo(page: Page, name: RegExp, most = 80) {
  for (let i = 0; i < most; i++) {
    await page.keyboard.press('Tab');
    const said = await page.evaluate(() => {
      const at = document.activeElement;
      return at === document.body ? '' : (at?.getAttribute('aria-label') ?? at?.textContent ?? '').trim();
    });
    if (name.test(said)) return said;
  }
  throw new Error(`nothing called ${name} within ${most} steps`);
}
const focused = (page: Page) => page.evaluate(() => (document.activeElement === document.body ? 'nothing' : (document.activeElement?.tagName ?? 'nothing')));

test('a link is cut and restored by keys alone, and the focus stays where it was', async ({ page }) => {
  test.setTimeout(120_000);
  await signIn(page);
  await page.locator('main').focus();
  const cut = await tabTo(page, /^Cut the uplink/);
  await page.keyboard.press('Enter');
  const restore = page.getByRole('button', { name: cut.replace('Cut', 'Restore') });
  await expect(restore).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(page.getByRole('button', { name: cut })).toBeFocused();
  // Who does not see the line above the page hears what it says.
  await expect(page.locator('[data-told]')).toHaveText(/./);
});

test('an alarm is acknowledged by keys alone', async ({ page }) => {
  test.setTimeout(400_000);
  await signIn(page);
  await open(page, 'alarms');
  const id = await oneThatStays(page);
  await page.goto('/#/alarms?show=active_unacknowledged');
  const rows = page.locator('tr[data-alarm]');
  const row = page.locator(`tr[data-alarm="${id}"]`);
  await expect(row).toBeVisible();
  const others = (await rows.count()) > 1;
  const name = (await row.getByRole('button', { name: /^Acknowledge/ }).evaluate((one) => one.getAttribute('aria-label') ?? one.textContent ?? '')).trim();
  await page.locator('main').focus();
  await tabTo(page, new RegExp(`^${name.replaceAll('.', '\\.')}$`));
  await page.keyboard.press('Enter');
  await expect(row).toHaveCount(0);
  expect((await alarms(page)).find((one) => one.id === id)).toMatchObject({ acknowledged_by: expect.stringMatching(/./) });
  // Its row is gone: the next one's button has the focus, where there is one. On a real plant that one may be cleared meanwhile.
  const focus = () => page.evaluate(() => (document.activeElement === document.body ? '' : (document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent ?? '').trim()));
  if (!real) await expect.poll(focus).toMatch(/^Acknowledge/);
  else if (!others) await expect.poll(focus).not.toBe('');
});

test('a dialog that is cancelled by keys gives the focus back', async ({ page }) => {
  test.setTimeout(400_000);
  await signIn(page);
  await open(page, 'alarms');
  const id = await oneThatStays(page);
  await expect(page.locator(`tr[data-alarm="${id}"]`).getByRole('button', { name: /^Shelve/ })).toBeVisible();
  await page.locator('main').focus();
  // The link to those that are shelved comes before.
  await tabTo(page, /^Shelve(?!d)/);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog')).toBeVisible();
  await tabTo(page, /^Cancel/);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  expect(await page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent)).toMatch(/^\s*Shelve/);
});

test('a dead letter is redriven by keys alone', async ({ page }) => {
  await signIn(page);
  await giveUp(page);
  await open(page, 'queues');
  await expect(page.locator('li[data-cause]').first()).toBeVisible();
  await page.locator('main').focus();
  await tabTo(page, /^Redrive/);
  await page.keyboard.press('Enter');
  await tabTo(page, /^Dry run/);
  await page.keyboard.press('Enter');
  await expect(page.getByRole('dialog')).toContainText('would be sent again');
  await tabTo(page, /^Redrive \d/);
  await page.keyboard.press('Enter');
  await expect(page.locator('[data-result]')).toContainText('were sent again');
  // The button is gone; the focus is still inside the dialog.
  expect(await page.evaluate(() => Boolean(document.activeElement?.closest('dialog')))).toBe(true);
  await page.keyboard.press('Escape');
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await expect.poll(() => focused(page)).not.toBe('nothing');
});

test('more tabs than a browser has connections', async ({ page, context }) => {
  test.setTimeout(120_000);
  await signIn(page);
  const tabs = [page];
  for (let i = 0; i < 5; i++) {
    const tab = await context.newPage();
    await tab.goto('/#/nodes');
    tabs.push(tab);
  }
  // A headless browser hides no tab by itself.
  for (const tab of tabs) {
    await tab.evaluate(() => {
      Object.defineProperty(document, 'hidden', { value: true, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    });
  }
  const last = await context.newPage();
  await last.goto('/#/nodes');
  await expect(last.locator('tr.node a').first()).toBeVisible({ timeout: 60_000 });
  // One that is looked at again goes on as if nothing had been.
  await page.evaluate(() => {
    Object.defineProperty(document, 'hidden', { value: false, configurable: true });
    document.dispatchEvent(new Event('visibilitychange'));
  });
  await expect(page.locator('[data-live]')).toBeVisible();
});

test('the theme follows the system, and can be chosen', async ({ page }) => {
  await page.emulateMedia({ colorScheme: 'dark' });
  await signIn(page);
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const dark = await ground();
  await page.getByRole('button', { name: 'Use light colours' }).click();
  const light = await ground();
  expect(light).not.toBe(dark);
  await page.reload();
  await expect(page.locator('#main h1')).toBeVisible();
  expect(await ground()).toBe(light);
});
