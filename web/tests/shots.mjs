// Pictures of every view, to be looked at: `node tests/shots.mjs [view…]` with a console at HOLDFAST_CONSOLE. Into web/shots/.
import { chromium } from '@playwright/test';
import { mkdirSync } from 'node:fs';

const base = process.env.HOLDFAST_CONSOLE ?? 'http://127.0.0.1:7710';
const token = process.env.HOLDFAST_OPERATOR_TOKEN ?? 'mock-operator';
const all = { flow: '#/flow', alerts: '#/alerts', conservation: '#/conservation', nodes: '#/nodes', node: null, queues: '#/queues', explore: '#/explore', sessions: '#/sessions', session: null, alarms: '#/alarms', schedules: '#/schedules', 'sign-in': '' };
const wanted = process.argv.slice(2).filter((one) => !one.includes('='));
const widths = (process.env.WIDTHS ?? '1280,390').split(',').map(Number);
const themes = (process.env.THEMES ?? 'light,dark').split(',');

mkdirSync('shots', { recursive: true });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-background-networking'] });
for (const theme of themes) {
  for (const width of widths) {
    const context = await browser.newContext({ viewport: { width, height: width > 600 ? 800 : 844 }, colorScheme: theme, hasTouch: width < 600, deviceScaleFactor: width > 600 ? 1 : 2 });
    const page = await context.newPage();
    page.on('console', (message) => ['error', 'warning'].includes(message.type()) && console.log(`${theme} ${width}:`, message.text()));
    page.on('pageerror', (failure) => console.log(`${theme} ${width}:`, failure.stack));
    await page.goto(base);
    if (!wanted.length || wanted.includes('sign-in')) {
      await page.getByLabel('Token').waitFor();
      await page.screenshot({ path: `shots/sign-in-${width}-${theme}.png` });
    }
    await page.getByLabel('Token').fill(token);
    await page.keyboard.press('Enter');
    await page.locator('#main h1').waitFor();
    for (const [name, hash] of Object.entries(all)) {
      if (name === 'sign-in' || (wanted.length && !wanted.includes(name))) continue;
      if (hash) await page.goto(`${base}/${hash}`);
      else if (name === 'node') {
        await page.goto(`${base}/#/nodes`);
        await page.locator('tbody a').first().click();
      } else if (name === 'session') {
        await page.goto(`${base}/#/sessions`);
        await page.locator('main tbody a, main [data-session] a').nth(1).click();
      }
      // As somebody sees it who has waited: answers are there, plots are drawn, a second picture has come.
      await page.locator('#main .loading').waitFor({ state: 'detached' }).catch(() => {});
      if (['explore', 'node'].includes(name)) await page.locator('.uplot canvas').first().waitFor();
      const clock = page.locator('[data-live] .clock');
      const before = await clock.textContent();
      await page.waitForFunction(([was]) => document.querySelector('[data-live] .clock')?.textContent !== was, [before]);
      await page.screenshot({ path: `shots/${name}-${width}-${theme}.png`, fullPage: width < 600 || process.env.FULL === '1' });
    }
    await context.close();
  }
}
await browser.close();
