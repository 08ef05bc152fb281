// The list of alerts: what it says of each, which come first, and what it says when all is well.
import { giveUp } from './letters';
import { ask, expect, open, real, signIn, test } from './page';

interface Alert {
  id: string;
  rule: string;
  severity: string;
  subject: string;
  text: string;
  what_to_do: string;
}
const alert: Omit<Alert, 'id' | 'rule' | 'subject'> & Record<string, unknown> = { severity: 'warning', site: null, since: '2026-02-01T10:00:00Z', value: null, threshold: null, unit: '', text: 'something holds', what_to_do: 'Look at it.' };

test('what the console says of each alert is there, the worst first', async ({ page }) => {
  await signIn(page);
  // What was given up is an alert in any system.
  await giveUp(page);
  await open(page, 'alerts');
  const cards = page.locator('li[data-alert]');
  const dead = page.locator('li[data-alert="dead_letters"]');
  await expect(dead.first()).toBeVisible();
  await expect(dead.first().getByRole('link')).toHaveText(/^Open Queues/);
  // Of a real system one may come or go between two looks; then both are looked at again.
  await expect(async () => {
    const { items } = await ask<{ items: Alert[] }>(page, '/api/v1/alerts');
    await expect(cards).toHaveCount(items.length, { timeout: 5_000 });
    await expect(page.locator('#main header')).toContainText(`${items.length} rule`, { timeout: 5_000 });
    const shown = await cards.evaluateAll((all) => all.map((one) => [one.getAttribute('data-alert'), one.querySelector('h2')?.textContent, one.querySelector('.top > :first-child')?.textContent?.trim()]));
    expect(shown).toEqual(items.map((one) => [one.rule, one.subject, one.severity === 'critical' ? 'Critical' : 'Warning']));
    const worst = items.map((one) => (one.severity === 'critical' ? 0 : 1));
    expect(worst).toEqual([...worst].sort((a, b) => a - b));
    expect(worst.length).toBeGreaterThan(0);
  }).toPass();
  if (!real) {
    const levels = await cards.evaluateAll((all) => new Set(all.map((one) => one.className.includes('critical'))).size);
    expect(levels, 'both levels are there').toBe(2);
    const late = page.locator('li[data-alert="node_silent"]').first();
    await expect(late).toContainText(/Nothing was received from .* for \d+ s/);
    await expect(late).toContainText(/since .*ago/);
    await expect(late).toContainText('What to do. Check its power and its network.');
    await late.getByRole('link').click();
    await expect(page.locator('#main dl.facts')).toBeVisible();
  } else {
    await dead.first().getByRole('link').click();
    await expect(page.locator('[data-dead]').first()).toBeVisible();
  }
});

test('values have their units, commands stand as commands, and each leads to its place', async ({ page }) => {
  const items = [
    { ...alert, id: 'a', rule: 'oldest_pending', severity: 'critical', subject: 'outbox:north', value: 90_000, threshold: 86_400, unit: 's' },
    { ...alert, id: 'b', rule: 'stuck', subject: 'outbox:north', value: 3, threshold: 0, unit: 'events', what_to_do: 'Look whether a forwarder runs; `holdfast outbox unclaim` frees them.' },
    { ...alert, id: 'c', rule: 'node_disk', subject: 'north/barn-1', value: 90_000_000, threshold: 100_000_000, unit: 'bytes' },
    { ...alert, id: 'd', rule: 'gap_declared', subject: 'north/barn-1' },
    { ...alert, id: 'e', rule: 'alarm_flood', subject: 'PLANT01' },
    { ...alert, id: 'f', rule: 'a_rule_of_tomorrow', subject: 'somebody' },
  ];
  await page.route('**/api/v1/alerts', (route) => route.fulfill({ json: { at: new Date().toISOString(), items } }));
  await signIn(page);
  await open(page, 'alerts');
  const card = (rule: string) => page.locator(`li[data-alert="${rule}"]`);
  await expect(card('oldest_pending')).toContainText('now 1 d 1 h, limit 1 d');
  await expect(card('stuck')).toContainText('now 3 events');
  await expect(card('stuck')).not.toContainText('limit');
  await expect(card('stuck').locator('code')).toHaveText('holdfast outbox unclaim');
  await expect(card('stuck')).not.toContainText('`');
  await expect(card('node_disk')).toContainText('now 90 MB, limit 100 MB');
  for (const [rule, to] of [['oldest_pending', '#/queues'], ['node_disk', '#/nodes/north/barn-1'], ['gap_declared', '#/conservation'], ['alarm_flood', '#/alarms'], ['a_rule_of_tomorrow', '#/flow']] as const) await expect(card(rule).getByRole('link')).toHaveAttribute('href', new RegExp(`${to}$`));
  await expect(card('a_rule_of_tomorrow')).toContainText('a rule of tomorrow');
});

test('when all is well that is said', async ({ page }) => {
  await page.route('**/api/v1/alerts', (route) => route.fulfill({ json: { at: new Date().toISOString(), items: [] } }));
  await signIn(page);
  await open(page, 'alerts');
  await expect(page.locator('#main')).toContainText('Nothing needs you.');
  await expect(page.locator('#main header')).toContainText('0 rules broken now');
  await expect(page.locator('li[data-alert]')).toHaveCount(0);
});
