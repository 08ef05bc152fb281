// How fast the page is: first paint, bundle, smoothness with many nodes and long plots. `node tests/measure.mjs` with a console at HOLDFAST_CONSOLE
// (the mock with `--nodes 1000`). Prints a table; asserts nothing, because machines vary.
import { chromium } from '@playwright/test';
import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

const base = process.env.HOLDFAST_CONSOLE ?? 'http://127.0.0.1:7710';
const token = process.env.HOLDFAST_OPERATOR_TOKEN ?? 'mock-operator';
const rows = [];
const note = (what, value) => rows.push([what, value]);

const sizes = readdirSync('dist/assets').map((name) => ({ name, gz: gzipSync(readFileSync(`dist/assets/${name}`)).length }));
const html = readFileSync('dist/index.html', 'utf8');
const kb = (bytes) => `${(bytes / 1000).toFixed(1)} kB`;
const first = sizes.filter(({ name }) => html.includes(name) || /^Flow-/.test(name));
note('bundle, all of it, gz', kb(sizes.reduce((sum, one) => sum + one.gz, 0)));
note('bundle before the first view, gz', kb(first.reduce((sum, one) => sum + one.gz, 0)));

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-background-networking'] });
const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
const paint = () => page.evaluate(() => Math.round(performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1));
await page.goto(base);
await page.getByLabel('Token').waitFor();
note('first contentful paint, sign-in, cold', `${await paint()} ms`);
await page.getByLabel('Token').fill(token);
await page.keyboard.press('Enter');
await page.locator('.stage').first().waitFor();
const loads = [];
for (let i = 0; i < 5; i++) {
  await page.reload();
  await page.locator('.stage').first().waitFor();
  loads.push([await paint(), await page.evaluate(() => Math.round(performance.now()))]);
}
const middle = (list) => list.sort((a, b) => a - b)[Math.floor(list.length / 2)];
note('first contentful paint, flow, median of 5', `${middle(loads.map(([one]) => one))} ms`);
note('whole picture drawn, median of 5', `${middle(loads.map(([, one]) => one))} ms`);

/** Frames while something is done: how many a second, and the longest between two. */
async function frames(what, act) {
  await page.evaluate(() => {
    const times = (window.frameTimes = []);
    const loop = (now) => (times.push(now), (window.frameLoop = requestAnimationFrame(loop)));
    requestAnimationFrame(loop);
    window.longTasks = [];
    new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((one) => Math.round(one.duration)))).observe({ type: 'longtask' });
  });
  await act();
  const [times, tasks] = await page.evaluate(() => (cancelAnimationFrame(window.frameLoop), [window.frameTimes, window.longTasks]));
  const gaps = times.slice(1).map((time, i) => time - times[i]).sort((a, b) => a - b);
  note(what, `${Math.round((1000 * gaps.length) / gaps.reduce((a, b) => a + b, 0))} frames/s, 95 % of frames within ${Math.round(gaps[Math.floor(gaps.length * 0.95)])} ms, worst ${Math.round(gaps.at(-1))} ms, tasks over 50 ms: ${tasks.length}`);
}
await frames('flow, 5 s of live pictures', () => page.waitForTimeout(5000));
await page.goto(`${base}/#/nodes`);
await page.locator('tr.node').first().waitFor();
note('nodes in the list, rows in the document', `${await page.locator('.filters .push').textContent()}, ${await page.locator('tr.node').count()}`);
await page.locator('.frame').hover();
await frames('nodes, scrolled through', async () => {
  for (let i = 0; i < 60; i++) {
    await page.mouse.wheel(0, 600);
    await page.waitForTimeout(30);
  }
});
await page.goto(`${base}/#/explore`);
await page.locator('.uplot canvas').waitFor();
const answered = page.waitForResponse((reply) => reply.url().includes('/explore/points'));
await page.getByRole('button', { name: '30 d', exact: true }).click();
await answered;
await page.waitForFunction(() => document.querySelector('.about')?.textContent?.includes('30 d'));
await page.waitForTimeout(500);
note('plot', (await page.locator('.about').textContent()).trim().slice(0, 90));
const box = await page.locator('.u-over').boundingBox();
await frames('plot, dragged and zoomed', async () => {
  await page.mouse.move(box.x + 600, box.y + 150);
  await page.mouse.down();
  for (let i = 0; i < 40; i++) {
    await page.mouse.move(box.x + 600 - i * 8, box.y + 150);
    await page.waitForTimeout(16);
  }
  await page.mouse.up();
  for (let i = 0; i < 30; i++) {
    await page.mouse.wheel(0, i < 15 ? -60 : 60);
    await page.waitForTimeout(30);
  }
});
await browser.close();
for (const [what, value] of rows) console.log(`${what.padEnd(44)} ${value}`);
