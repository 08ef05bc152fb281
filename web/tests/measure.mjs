// How fast the page is, beside a bare page in the same run: `./dev bench page`. Plays a console with 1,000 nodes, or measures a real one:
// `HOLDFAST_CONSOLE=http://… HOLDFAST_OPERATOR_TOKEN=… npm run measure`.
// A value that misses its bar is said in the table and is no failure: machines vary. What must hold on every machine is in bundle.spec.ts and many.spec.ts.
import { chromium } from '@playwright/test';
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const ROUNDS = 5;
const FRAMES_FOR_MS = 4_000;
const FIRST_PAINT_MS = 1_000;
/** Of the frames that an empty page has. */
const SMOOTH = 0.9;
const rows = [];
/** How many the console has, as it is written. */
let nodes = '';

const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const more = (name, unit, values, beside, bar) => rows.push({ name, unit, value: middle(values), baseline: middle(beside), ratio: middle(values) / middle(beside), bar, below: bar !== undefined && middle(values) / middle(beside) < bar });
/** Where less is better; a bar is a value. */
const less = (name, unit, values, beside, bar) => rows.push({ name, unit, value: middle(values), baseline: middle(beside), ratio: middle(beside) / middle(values), bar, below: bar !== undefined && middle(values) >= bar });

const real = process.env.HOLDFAST_CONSOLE;
const token = process.env.HOLDFAST_OPERATOR_TOKEN ?? 'mock-operator';
const mock = real ? null : spawn(process.execPath, [fileURLToPath(new URL('../mock/server.js', import.meta.url)), '--port', '0', '--nodes', '1000'], { stdio: ['ignore', 'pipe', 'inherit'] });
const base = real?.replace(/\/$/, '') ?? (await new Promise((done, failed) => {
  mock.on('exit', () => failed(new Error('the played console ended before it began')));
  createInterface(mock.stdout).on('line', (line) => /http:\S+/.test(line) && done(/http:\S+/.exec(line)[0]));
}));
/** A page with nothing in it, which the page is measured beside: served from here, so that it is the same whoever serves the page. */
const empty = createServer((_, reply) => reply.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end('<!doctype html><html lang="en"><title>bare</title><p>bare</p></html>'));
await new Promise((done) => empty.listen(0, '127.0.0.1', done));
const bareAt = `http://127.0.0.1:${empty.address().port}/`;
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-background-networking'] });

try {
  await firstPaint();
  const page = await signedIn();
  await frames(page);
  await plots(page);
} finally {
  await browser.close();
  empty.close();
  mock?.kill();
}
print();

/** A browser that has never seen the page, and one that has: each beside a bare page. */
async function firstPaint() {
  const paint = (page) => page.evaluate(() => new Promise((done) => {
    new PerformanceObserver((list) => list.getEntriesByName('first-contentful-paint').forEach((one) => done(one.startTime))).observe({ type: 'paint', buffered: true });
  }));
  const fresh = async (address, seen) => {
    const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
    const page = await context.newPage();
    await page.goto(address);
    await page.locator(seen).first().waitFor();
    const at = await paint(page);
    await context.close();
    return at;
  };
  await fresh(bareAt, 'p');
  const [cold, bare, flow, whole] = [[], [], [], []];
  for (let i = 0; i < ROUNDS; i++) {
    bare.push(await fresh(bareAt, 'p'));
    cold.push(await fresh(`${base}/`, '#app input'));
  }
  less('page/first_paint, never seen', 'ms', cold, bare, FIRST_PAINT_MS);
  const page = await signedIn();
  for (let i = 0; i < ROUNDS; i++) {
    await page.reload();
    await page.locator('.stage').first().waitFor();
    whole.push(await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame((at) => done(at))))));
    flow.push(await paint(page));
  }
  less('page/first_paint, flow', 'ms', flow, bare, FIRST_PAINT_MS);
  less(`page/whole picture, ${nodes} nodes`, 'ms', whole, bare);
  await page.context().close();
}

async function signedIn() {
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
  await page.goto(base);
  await page.getByLabel('Token').fill(token);
  await page.keyboard.press('Enter');
  await page.locator('.stage').first().waitFor();
  nodes = await page.evaluate(async () => (await (await fetch('/api/v1/picture')).json()).nodes.total.toLocaleString('en-GB'));
  return page;
}

/** Frames a second while something is done, and the longest between two. */
async function perSecond(page, act) {
  await page.evaluate(() => {
    const times = (window.frameTimes = []);
    const loop = (now) => (times.push(now), (window.frameLoop = requestAnimationFrame(loop)));
    window.frameLoop = requestAnimationFrame(loop);
  });
  await act();
  return page.evaluate(() => {
    cancelAnimationFrame(window.frameLoop);
    const times = window.frameTimes;
    return ((times.length - 1) * 1000) / (times.at(-1) - times[0]);
  });
}

async function frames(page) {
  const blank = await (await browser.newContext({ viewport: { width: 1280, height: 800 } })).newPage();
  await blank.goto(bareAt);
  const rest = () => page.waitForTimeout(FRAMES_FOR_MS);
  const scroll = async () => {
    for (let i = 0; i < FRAMES_FOR_MS / 40; i++) {
      await page.mouse.wheel(0, i % 100 < 50 ? 600 : -600);
      await page.waitForTimeout(30);
    }
  };
  const [bare, flow, list] = [[], [], []];
  for (let i = 0; i < 3; i++) {
    await blank.bringToFront();
    bare.push(await perSecond(blank, rest));
    await page.bringToFront();
    await page.goto(`${base}/#/flow`);
    await page.locator('.stage').first().waitFor();
    flow.push(await perSecond(page, rest));
    await page.goto(`${base}/#/nodes`);
    await page.locator('tr.node a').first().waitFor();
    await page.locator('.frame').hover();
    list.push(await perSecond(page, scroll));
  }
  more(`page/live picture, ${nodes} nodes`, 'frames/s', flow, bare, SMOOTH);
  more(`page/list scrolled, ${nodes} nodes`, 'frames/s', list, bare, SMOOTH);
  await blank.context().close();
}

/** From the press of a button until a plot of that time is drawn: in the played console thirty days are 2.6 million readings that it thinned, ten minutes six hundred as they are. */
async function plots(page) {
  await page.goto(`${base}/#/explore`);
  await page.locator('.plot[data-points]').waitFor();
  // How many readings a real system has is not known before: there the answer itself is waited for.
  const ask = async (name, from) => {
    const began = Date.now();
    const long = ({ searchParams: of }) => (Date.parse(of.get('to')) - Date.parse(of.get('from'))) / 1000;
    await Promise.all([page.waitForResponse((reply) => reply.url().includes('/explore/points') && Math.abs(long(new URL(reply.url())) - from) < 5), page.getByRole('button', { name, exact: true }).click()]);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    return Date.now() - began;
  };
  const draw = (name, least, most, seconds) => real ? ask(name, seconds) : page.evaluate(([span, low, high]) => new Promise((done) => {
    const button = [...document.querySelectorAll('.spans button')].find((one) => one.textContent === span);
    const about = document.querySelector('.about');
    const from = performance.now();
    // The words and the plot change together, once the answer is there.
    const watch = new MutationObserver(() => {
      const readings = Number(/([\d,]+) readings/.exec(about.textContent)?.[1].replaceAll(',', ''));
      if (!(readings >= low && readings <= high)) return;
      watch.disconnect();
      requestAnimationFrame(() => requestAnimationFrame((at) => done(at - from)));
    });
    watch.observe(about, { subtree: true, childList: true, characterData: true });
    button.click();
  }), [name, least, most]);
  const [long, short] = [[], []];
  let about = '';
  for (let i = 0; i < ROUNDS; i++) {
    short.push(await draw('10 min', 1, 2_000, 600));
    long.push(await draw('30 d', 1_000_000, 3_000_000, 2_592_000));
    about = /[\d,]+ readings as [\d,]+ points/.exec(await page.locator('.about').textContent())?.[0] ?? 'no readings';
  }
  less(`page/plot, ${about}`, 'ms', long, short);
  await page.context().close();
}

function print() {
  const digits = (value) => (value >= 1000 ? Math.round(value).toLocaleString('en-GB') : value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0));
  const lines = [['name', 'value', 'unit', 'baseline', 'ratio', 'bar', '']];
  for (const row of rows) {
    const bar = row.bar === undefined ? '' : row.unit === 'ms' ? `<${digits(row.bar)} ms` : row.bar.toFixed(2);
    lines.push([row.name, digits(row.value), row.unit, digits(row.baseline), row.ratio.toFixed(2), bar, row.bar === undefined ? '' : row.below ? 'below' : 'ok']);
  }
  const widths = lines[0].map((_, i) => Math.max(...lines.map((line) => line[i].length)));
  for (const line of lines) console.log(line.map((cell, i) => ([1, 3, 4, 5].includes(i) ? cell.padStart(widths[i]) : cell.padEnd(widths[i]))).join('  ').trimEnd());
  const barred = rows.filter((row) => row.bar !== undefined);
  console.log('A ratio above 1 is better than the baseline, also where a smaller value is. The baseline is a bare page, for the plot one of ten minutes.');
  console.log(`${real ? `measured at ${base}` : 'measured with the played console'}, page and bare page in the same run`);
  console.log(`${barred.filter((row) => !row.below).length} of ${barred.length} bars reached`);
}
