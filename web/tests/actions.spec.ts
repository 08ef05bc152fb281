import { check } from './axe';
import { ask, expect, number, open, real, signIn, test } from './page';
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
  const same = await causes.first().locator('xpath=ancestor::*[@data-dead]').locator(whole).count();
  expect(same).toBeGreaterThan(0);
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

interface Alarm {
  id: string;
  state: string;
  last_raised_at: string | null;
  acknowledged_by: string | null;
  shelved_until: string | null;
  shelved_by: string | null;
  shelf_reason: string | null;
}
const alarms = async (page: Page) => (await ask<{ items: Alarm[] }>(page, '/api/v1/alarms?limit=200')).items;

/** Of those that nobody has acknowledged, the one raised last. A real one is cleared when it was quiet for five minutes: it must be young enough to stay. */
async function oneThatStays(page: Page): Promise<string | undefined> {
  const young = real ? Date.now() - 90_000 : 0;
  const open = (await alarms(page)).filter((one) => one.state === 'active_unacknowledged' && !one.shelved_until && Date.parse(one.last_raised_at ?? '') > young);
  return open.sort((a, b) => b.last_raised_at!.localeCompare(a.last_raised_at!))[0]?.id;
}

test('an alarm is acknowledged, shelved and unshelved', async ({ page }) => {
  test.setTimeout(400_000);
  await signIn(page);
  await open(page, 'alarms');
  // A plant that works raises one every few minutes.
  await expect.poll(() => oneThatStays(page), { timeout: 240_000 }).toBeTruthy();
  const id = (await oneThatStays(page))!;
  const now = async () => (await alarms(page)).find((one) => one.id === id)!;
  expect((await now()).acknowledged_by).toBeNull();
  await page.getByRole('link', { name: 'All', exact: true }).click();
  const row = page.locator(`tr[data-alarm="${id}"]`);
  await expect(row).toContainText('Active, not acknowledged');
  await row.getByRole('button', { name: /^Acknowledge/ }).click();
  await expect(page.getByRole('status').filter({ hasText: 'acknowledged' }).first()).toBeVisible();
  const acknowledged = await now();
  expect(acknowledged).toMatchObject({ state: 'active_acknowledged', acknowledged_by: expect.stringMatching(/./) });
  if (!real) expect(acknowledged.acknowledged_by).toBe('mock-operator');
  await expect(row).toContainText('Active, acknowledged');
  await expect(row).toContainText(`by ${acknowledged.acknowledged_by}`);
  await expect(row.getByRole('button', { name: /^Acknowledge/ })).toHaveCount(0);

  await row.getByRole('button', { name: /^Shelve/ }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Why').fill('looked at by the test');
  await dialog.getByRole('button', { name: 'Shelve', exact: true }).click();
  await expect(row).toContainText('looked at by the test');
  // The real console says behind the reason who it was.
  expect(await now()).toMatchObject({ shelf_reason: expect.stringMatching(/^looked at by the test/), shelved_by: acknowledged.acknowledged_by, shelved_until: expect.stringMatching(/^\d{4}-/) });
  await page.getByRole('link', { name: /^Shelved/ }).click();
  await expect(row).toBeVisible();
  await row.getByRole('button', { name: /^Unshelve/ }).click();
  await expect(row).toHaveCount(0);
  expect(await now()).toMatchObject({ shelf_reason: null, shelved_by: null, shelved_until: null });
});
