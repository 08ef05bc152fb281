import { check } from './axe';
import { oneThatStays, alarms } from './alarm';
import { giveUp } from './letters';
import { expect, number, open, real, signIn, test } from './page';
import type { Page } from '@playwright/test';

/** A place of the first site, as the picture shows it. */
const place = (page: Page, stage: string) => page.locator('article.lane').first().locator('.stage', { has: page.locator('.name', { hasText: stage }) }).last();
/** What the page says of a length of time, in seconds. */
function seconds(said: string | null): number {
  const [, n, unit] = /(\d+) (s|min|h)/.exec(said ?? '') ?? [];
  return Number(n ?? 0) * ({ s: 1, min: 60, h: 3_600 }[unit ?? 's'] ?? 1);
}

test('a link is cut: the hole is seen, the backlog rises; it is restored and drains', async ({ page }) => {
  test.setTimeout(300_000);
  await signIn(page);
  const lane = page.locator('article.lane').first();
  const link = lane.locator('[data-link^="uplink:"]');
  const edge = place(page, 'Edge');
  const held = async () => number(await edge.locator('.figures .held').textContent());
  // What is not there is not waited for: nothing is old then.
  const age = async () => seconds((await edge.locator('.age').allTextContents())[0] ?? null);
  await expect(link.getByRole('button', { name: /^Cut/ })).toBeVisible();
  await link.getByRole('button', { name: /^Cut/ }).click();
  await expect(link).toHaveAttribute('data-state', 'down');
  await expect(link.locator('.said')).toContainText('Cut');
  await expect(link.locator('svg.hole')).toBeVisible();
  await expect(page.locator('.health')).toContainText(/link is down|links are down/);
  // The breaker is opened by attempts that fail.
  await expect(link.locator('.more')).toHaveText(/^breaker (open: holds back|half open: one probe)$/, { timeout: 60_000 });
  expect(await check(page), 'the picture with a hole').toEqual([]);
  const before = await held();
  await expect.poll(held, { timeout: 40_000 }).toBeGreaterThan(before + 20);
  // The oldest of it grows older while nothing leaves.
  await expect.poll(age, { timeout: 40_000 }).toBeGreaterThan(5);
  const young = await age();
  await expect.poll(age, { timeout: 60_000 }).toBeGreaterThan(young + (real ? 2 : 15));
  await expect(edge.locator('.age')).toHaveText(/^, oldest \d+ (s|min)$/);
  const most = await held();
  await link.getByRole('button', { name: /^Restore/ }).click();
  await expect(link).toHaveAttribute('data-state', 'up', { timeout: 60_000 });
  // A small system drains before it could be said how long it takes; the one that is played takes its time.
  if (!real) await expect(link.locator('.drain')).toHaveText(/^drained in about \d+ s$/);
  await expect.poll(held, { timeout: 60_000 }).toBeLessThan(most / 2);
  await expect(link.locator('.drain')).toHaveCount(0, { timeout: 60_000 });
  await expect(link.locator('.more')).toHaveCount(0);
  await expect.poll(age, { timeout: 60_000 }).toBeLessThan(young);
});

test('one node’s cable is cut and restored on its own page: its backlog rises and drains', async ({ page }) => {
  test.setTimeout(180_000);
  await signIn(page);
  await open(page, 'nodes');
  await page.locator('tr.node a').first().click();
  const cut = page.getByRole('button', { name: 'Cut its cable' });
  await expect(page.locator('dl.facts')).toBeVisible();
  const restore = page.getByRole('button', { name: 'Restore its cable' });
  await expect(cut.or(restore)).toBeVisible();
  if (await restore.isVisible()) await restore.click();
  const fact = (name: string) => page.locator('dl.facts div', { has: page.locator('dt', { hasText: name }) }).locator('dd');
  const said = (name: string) => fact(name).evaluate((dd) => dd.firstChild?.textContent ?? '');
  const backlog = async () => number(await said('Backlog'));
  const acked = async () => number(await page.locator('dl.ledger dt', { hasText: 'acknowledged' }).locator('xpath=following-sibling::dd[1]').textContent());
  const silent = async () => (/now/.test(await said('Last receipt')) ? 0 : seconds(await said('Last receipt')));
  await cut.click();
  await expect(restore).toBeVisible();
  await expect.poll(silent, { timeout: 60_000 }).toBeGreaterThan(8);
  const [arrived, held] = [await acked(), await backlog()];
  // A real node cannot say what it holds while it is cut; that nothing comes from it is known.
  if (!real) {
    await expect.poll(backlog, { timeout: 60_000 }).toBeGreaterThan(held + 10);
    await expect.poll(async () => seconds(await said('Oldest waiting')), { timeout: 60_000 }).toBeGreaterThan(8);
    await expect(fact('Oldest waiting')).toContainText(/as of \d+ s ago/);
  }
  expect(await acked()).toBe(arrived);
  const most = await backlog();
  await restore.click();
  await expect(cut).toBeVisible();
  await expect.poll(silent, { timeout: 90_000 }).toBeLessThan(6);
  // What it kept has come: more than nothing, and nothing of it is left.
  await expect.poll(acked, { timeout: 60_000 }).toBeGreaterThan(arrived + (real ? 5 : most - 5));
  await expect.poll(backlog, { timeout: 60_000 }).toBeLessThan(real ? 20 : Math.max(5, most / 4));
  if (!real) await expect(fact('Oldest waiting')).not.toContainText('as of');
});

/** Redrives the first cause of a queue as a person does: a dry run first, then for good. */
async function redriveFirst(page: Page, queue: string) {
  await signIn(page);
  await giveUp(page);
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

test('an alarm is acknowledged, shelved and unshelved', async ({ page }) => {
  test.setTimeout(400_000);
  await signIn(page);
  await open(page, 'alarms');
  const id = await oneThatStays(page);
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
