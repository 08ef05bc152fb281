import { expect, open, signIn, test } from './page';

test.use({ hasTouch: true, viewport: { width: 390, height: 844 } });

test('a plot is zoomed with two fingers and moved with one, and the page still scrolls', async ({ page }) => {
  await signIn(page);
  await open(page, 'explore');
  await expect(page.locator('.chip')).toHaveCount(1);
  await page.getByRole('button', { name: '6 h', exact: true }).click();
  await expect(page.locator('.about')).toContainText('6 h shown');
  const box = (await page.locator('.u-over').boundingBox())!;
  const hand = await page.context().newCDPSession(page);
  const y = box.y + box.height / 2;
  const touch = (type: 'touchStart' | 'touchMove' | 'touchEnd', shares: number[]) =>
    hand.send('Input.dispatchTouchEvent', { type, touchPoints: shares.map((share, id) => ({ x: box.x + box.width * share, y, id })) });

  await touch('touchStart', [0.4, 0.6]);
  for (let i = 1; i <= 10; i++) await touch('touchMove', [0.4 - i * 0.02, 0.6 + i * 0.02]);
  await touch('touchEnd', []);
  await expect(page.locator('.about')).toContainText('2 h');
  const label = page.locator('.plot[role="application"]');
  const before = await label.getAttribute('aria-label');

  await touch('touchStart', [0.2]);
  for (let i = 1; i <= 10; i++) await touch('touchMove', [0.2 + i * 0.05]);
  await touch('touchEnd', []);
  await expect(label).not.toHaveAttribute('aria-label', before!);
  await expect(page.locator('.about')).toContainText('2 h');

  expect(await page.evaluate(() => getComputedStyle(document.querySelector('.u-over')!).touchAction)).toBe('pan-y');
});
