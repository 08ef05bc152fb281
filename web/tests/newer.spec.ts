// A console that is newer than the page says words that the page does not know: they are shown, and break nothing.
import { giveUp } from './letters';
import { ask, expect, open, real, signIn, test } from './page';

interface Flow {
  lanes: object[];
  stages: object[];
  links: object[];
}

test('a picture with kinds, states and lanes that are not known is drawn', async ({ page }) => {
  await signIn(page);
  const picture = await ask<{ tick: number; flow: Flow }>(page, '/api/v1/picture');
  const stage = { kind: 'gateway', lane: 'harbour', name: 'Gate 7', state: 'dreaming', rate_per_s: 4, held: 12, oldest_age_s: 9, detail: 'a kind of tomorrow' };
  const link = { to: 'nowhere', state: 'bent', rate_per_s: 1, breaker: 'ajar', held: 3, drain_estimate_s: 40, since: null, cuttable: false, cut: false };
  const { lanes, stages, links } = picture.flow;
  picture.flow = {
    lanes: [...lanes, { id: 'harbour', name: 'harbour', kind: 'port' }],
    stages: [...stages, { ...stage, id: 'gateway:7' }, { ...stage, id: 'gateway:8', lane: 'not-a-lane', name: 'Gate 8' }, { ...stage, id: 'gateway:9', lane: null, name: 'Gate 9' }],
    links: [...links, { ...link, id: 'odd', from: 'gateway:7' }, { ...link, id: 'odder', from: 'gateway:9' }],
  };
  // The stream says it once and no more, so that it stays.
  await page.route('**/api/v1/stream', (route) => route.fulfill({ contentType: 'text/event-stream', body: `event: picture\ndata: ${JSON.stringify({ ...picture, tick: picture.tick + 1 })}\n\n` }));
  await page.reload();
  for (const name of ['Gate 7', 'Gate 8', 'Gate 9']) {
    const card = page.locator('div.stage', { has: page.locator('.name', { hasText: name }) });
    await expect(card).toContainText('12 held, oldest 9 s');
    await expect(card).toContainText('dreaming');
  }
  await expect(page.locator('[data-link="odd"]')).toContainText('breaker ajar');
  await expect(page.locator('[data-link="odder"]')).toContainText('drained in about 40 s');
  await expect(page.getByText('This view broke.')).toHaveCount(0);
  await expect(page.locator('#main .name', { hasText: 'undefined' })).toHaveCount(0);
});

test('a plant is drawn from its SCADA nodes over its bus to its historian', async ({ page }) => {
  await signIn(page);
  interface Plant { lanes: { id: string; kind: string; name: string }[]; stages: { kind: string; lane: string | null; name: string }[]; links: { id: string }[] }
  const { flow } = await ask<{ flow: Plant }>(page, '/api/v1/picture');
  const lane = flow.lanes.find((one) => one.kind === 'plant')!;
  const of = (kind: string) => flow.stages.filter((one) => one.lane === lane.id && one.kind === kind).map((one) => one.name);
  const [nodes, bus, store] = [of('node'), of('bus'), of('store')];
  expect([nodes.length > 0, bus.length, store.length]).toEqual([true, 1, 1]);
  const plant = page.locator('article.lane', { has: page.getByRole('heading', { name: lane.name, exact: true }) });
  const names = plant.locator('div.stage .name');
  await expect(names).toHaveText([...nodes.map((name) => `SCADA ${name}`), 'Bus', 'Historian']);
  await expect(plant.locator('[data-link]')).toHaveCount(nodes.length + 1);
  const tops = await names.evaluateAll((all) => all.map((one) => one.getBoundingClientRect().top));
  expect(new Set(tops.slice(0, nodes.length)).size, 'the nodes stand side by side').toBe(1);
  expect(tops.at(-2)).toBeGreaterThan(tops[0]!);
  expect(tops.at(-1)).toBeGreaterThan(tops.at(-2)!);
});

test('a queue that is looked at here and acted upon elsewhere names the command', async ({ page }) => {
  await signIn(page);
  await open(page, 'queues');
  const rows = page.locator('tr[data-queue^="producer:"]');
  await expect(rows.first().locator('code')).toHaveText('holdfast scada producer redrive');
  await expect(rows.first()).not.toContainText('`');
});

test('a queue that cannot be acted upon says what to do instead', async ({ page }) => {
  test.skip(real, 'a real system has no dead letters at a SCADA node');
  await signIn(page);
  await giveUp(page);
  await open(page, 'queues');
  await expect(page.locator('tr[data-queue="producer:line-2"]')).toContainText('Outbox of SCADA line-2');
  const dead = page.locator('[data-dead="producer:line-2"]');
  await expect(dead).toContainText('refused');
  await expect(dead.locator('[data-note] code')).toHaveText('holdfast scada producer redrive');
  await expect(dead.getByRole('button')).toHaveCount(0);
  // The others have theirs.
  await expect(page.locator('[data-dead]:not([data-dead="producer:line-2"])').getByRole('button').first()).toBeVisible();
});
