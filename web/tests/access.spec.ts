import { check } from './axe';
import { expect, open, operator, signIn, test, views } from './page';

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
      for (const view of await views(page)) {
        await open(page, view);
        await expect(page.locator('#main .loading')).toHaveCount(0);
        expect.soft(await check(page), view).toEqual([]);
      }
      await open(page, 'nodes');
      await page.locator('tr.node a').first().click();
      await expect(page.locator('.uplot canvas').first()).toBeVisible();
      expect(await check(page), 'one node').toEqual([]);
    });
  }
}

test('nothing is wider than a narrow screen', async ({ page }) => {
  await page.setViewportSize({ width: 390, height: 844 });
  await signIn(page);
  for (const view of await views(page)) {
    await open(page, view);
    await expect(page.locator('#main .loading')).toHaveCount(0);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(wide, view).toBeLessThanOrEqual(390);
  }
  for (const [list, first] of [['nodes', 'tr.node a'], ['sessions', 'tr[data-session] a']] as const) {
    if (!(await views(page)).includes(list)) continue;
    await open(page, list);
    if ((await page.locator(first).count()) === 0) continue;
    await page.locator(first).first().click();
    await expect(page.locator('#main dl').first()).toBeVisible();
    expect(await page.evaluate(() => document.documentElement.scrollWidth), `one of ${list}`).toBeLessThanOrEqual(390);
  }
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('dialog').getByRole('link', { name: /^Conservation/ }).click();
  await expect(page.locator('#main h1')).toHaveText('Conservation');
  await expect(page.getByRole('dialog')).toHaveCount(0);
});

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
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await expect(page.locator('#main h1')).toHaveText('Nodes');
  await expect(page.locator('tr.node a').first()).toBeVisible();
  await page.getByRole('region', { name: 'Nodes' }).focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  const name = await page.evaluate(() => document.activeElement?.textContent);
  await page.keyboard.press('Enter');
  await expect(page.locator('#main h1')).toContainText(name!);
  // Every place that has the focus shows it.
  await page.keyboard.press('g');
  await page.keyboard.press('q');
  await expect(page.locator('#main h1')).toHaveText('Queues');
  for (let i = 0; i < 12; i++) {
    await page.keyboard.press('Tab');
    const seen = await page.evaluate(() => {
      const style = getComputedStyle(document.activeElement ?? document.body);
      return document.activeElement === document.body || (style.outlineStyle !== 'none' && Number.parseFloat(style.outlineWidth) >= 2);
    });
    expect(seen).toBe(true);
  }
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
