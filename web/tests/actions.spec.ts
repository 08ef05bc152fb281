import { check } from './axe';
import { expect, number, open, signIn, test } from './page';
import type { Page } from '@playwright/test';

/** What the edge of the first site holds, as the picture says. */
function heldAt(page: Page, stage: string) {
  const card = page.locator('article.lane').first().locator('.stage', { has: page.locator('.name', { hasText: stage }) }).last();
  return async () => number(await card.locator('.figures .held').textContent());
}

test('a link is cut: the hole is seen, the backlog rises; it is restored and drains', async ({ page }) => {
  test.setTimeout(240_000);
  await signIn(page);
  const lane = page.locator('article.lane').first();
  const link = lane.locator('[data-link^="uplink:"]');
  await expect(link.getByRole('button', { name: /^Cut/ })).toBeVisible();
  await link.getByRole('button', { name: /^Cut/ }).click();
  await expect(link).toHaveAttribute('data-state', 'down');
  await expect(link.locator('.said')).toContainText('Cut');
  await expect(link.locator('svg.hole')).toBeVisible();
  await expect(page.locator('.health')).toContainText(/link is down|links are down/);
  expect(await check(page), 'the picture with a hole').toEqual([]);
  const held = heldAt(page, 'Edge');
  const before = await held();
  await expect.poll(held, { timeout: 40_000 }).toBeGreaterThan(before + 20);
  const most = await held();
  await link.getByRole('button', { name: /^Restore/ }).click();
  await expect(link).toHaveAttribute('data-state', 'up', { timeout: 60_000 });
  await expect.poll(held, { timeout: 60_000 }).toBeLessThan(most / 2);
});

test('one node’s cable is cut and restored on its own page', async ({ page }) => {
  test.setTimeout(180_000);
  await signIn(page);
  await open(page, 'nodes');
  await page.locator('tr.node a').first().click();
  const cut = page.getByRole('button', { name: 'Cut its cable' });
  await expect(page.locator('dl.facts')).toBeVisible();
  const restore = page.getByRole('button', { name: 'Restore its cable' });
  await expect(cut.or(restore)).toBeVisible();
  if (await restore.isVisible()) await restore.click();
  await cut.click();
  await expect(page.getByRole('button', { name: 'Restore its cable' })).toBeVisible();
  // What it holds is not known while it cannot say so; that nothing comes from it is.
  const value = page.locator('dl.facts div', { hasText: 'Last receipt' }).locator('dd');
  const silent = () => value.evaluate((dd) => {
    const said = dd.firstChild?.textContent ?? '';
    return /min|h|d /.test(said) ? 60 : Number(/\d+/.exec(said)?.[0] ?? 0);
  });
  await expect.poll(silent, { timeout: 60_000 }).toBeGreaterThan(8);
  await page.getByRole('button', { name: 'Restore its cable' }).click();
  await expect(page.getByRole('button', { name: 'Cut its cable' })).toBeVisible();
  await expect.poll(silent, { timeout: 90_000 }).toBeLessThan(6);
});

/** Redrives the first cause of a queue as a person does: a dry run first, then for good. */
async function redriveFirst(page: Page, queue: string) {
  await signIn(page);
  await open(page, 'queues');
  await expect(page.locator('tr[data-queue]').first()).toBeVisible();
  const causes = page.locator(`${queue} li[data-cause]`);
  await expect(causes.first()).toBeVisible();
  const [cause, tenant] = [await causes.first().getAttribute('data-cause'), await causes.first().getAttribute('data-tenant')];
  const whole = `li[data-cause="${cause}"]${tenant ? `[data-tenant="${tenant}"]` : ''}`;
  const same = await page.locator(queue).filter({ has: causes.first() }).locator(whole).count();
  const before = await causes.count();
  await causes.first().getByRole('button', { name: /^Redrive/ }).click();
  const dialog = page.getByRole('dialog');
  await expect(dialog.getByRole('button', { name: /^Redrive/ })).toHaveAttribute('aria-disabled', 'true');
  // A cause may have several lines, one for each kind of event; all of them go, and that is said.
  await expect(dialog.locator('[data-whole]')).toHaveCount(same > 1 ? 1 : 0);
  await dialog.getByRole('button', { name: 'Dry run', exact: true }).click();
  await expect(dialog).toContainText('would be sent again');
  await dialog.getByRole('button', { name: /^Redrive \d/ }).click();
  await expect(dialog.locator('[data-result]')).toContainText('were sent again');
  await dialog.getByRole('button', { name: 'Close', exact: true }).last().click();
  await expect(causes).toHaveCount(before - same, { timeout: 20_000 });
}

test('a dead letter is redriven: a dry run first, then progress, then it is gone', async ({ page }) => {
  await redriveFirst(page, '[data-dead]:not([data-dead="historian"])');
});

test('what the historian gave up is redriven in the same way', async ({ page }) => {
  await redriveFirst(page, '[data-dead="historian"]');
});

test('an alarm is acknowledged, shelved and unshelved', async ({ page }) => {
  test.setTimeout(300_000);
  await signIn(page);
  await open(page, 'alarms');
  await page.getByRole('link', { name: /^Not acknowledged/ }).click();
  const row = page.locator('tr[data-alarm]').first();
  // A plant that works raises one every few minutes.
  await expect(row).toBeVisible({ timeout: 240_000 });
  const id = (await row.getAttribute('data-alarm'))!;
  await row.getByRole('button', { name: /^Acknowledge/ }).click();
  await expect(page.getByRole('status').filter({ hasText: 'acknowledged' }).first()).toBeVisible();
  await page.getByRole('link', { name: 'All', exact: true }).click();
  const same = page.locator(`tr[data-alarm="${id}"]`);
  await expect(same).toContainText(/Active, acknowledged|Normal|Cleared|Active, not/);
  const shelve = same.getByRole('button', { name: /^Shelve/ });
  test.skip((await shelve.count()) === 0, 'the alarm cleared by itself meanwhile');
  await shelve.click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Why').fill('looked at by the test');
  await dialog.getByRole('button', { name: 'Shelve', exact: true }).click();
  await expect(same).toContainText('looked at by the test');
  await same.getByRole('button', { name: /^Unshelve/ }).click();
  await expect(same).not.toContainText('looked at by the test');
});
