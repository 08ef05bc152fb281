// How fast the page of a console is, beside a bare page in the same browser. `./dev bench page` starts a console with 1,000 nodes and a million points, and asks for `--json`. By hand:
// `HOLDFAST_CONSOLE=http://… HOLDFAST_OPERATOR_TOKEN=… npm run measure`.
// A value that misses its bar is said in the table and is no failure: machines vary. What must hold on every machine is in bundle.spec.ts and many.spec.ts.
import { chromium } from '@playwright/test';
import { createServer } from 'node:http';

const ROUNDS = 5;
const FRAMES_FOR_MS = 4_000;
const FIRST_PAINT_MS = 1_000;
/** Of the frames that an empty page has. */
const SMOOTH = 0.9;
const rows = [];
/** How many the console has, as it is written. */
let nodes = '';

const base = process.env.HOLDFAST_CONSOLE?.replace(/\/$/, '');
const token = process.env.HOLDFAST_OPERATOR_TOKEN;
if (!base || !token) throw new Error('HOLDFAST_CONSOLE and HOLDFAST_OPERATOR_TOKEN say which console is looked at; ./dev bench page starts one');

const middle = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
/** Where more is better. The bar is a ratio to what stands beside it. */
const more = (name, unit, values, beside, bar) => rows.push({ name, unit, value: middle(values), baseline: middle(beside), more: true, bar });
/** Where less is better. */
const less = (name, unit, values, beside, bar) => rows.push({ name, unit, value: middle(values), baseline: middle(beside), more: false, bar });
/** The time that something may take, and reaches with a ratio of 1. */
const within = (name, values, most) => less(`${name} beside ${most} ms`, 'ms', values, [most], 1);

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
  within('first_paint, never seen', cold, FIRST_PAINT_MS);
  less('first_paint, never seen, beside a bare page', 'ms', cold, bare);
  const page = await signedIn();
  for (let i = 0; i < ROUNDS; i++) {
    await page.reload();
    await page.locator('.stage').first().waitFor();
    whole.push(await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame((at) => done(at))))));
    flow.push(await paint(page));
  }
  within('first_paint, flow', flow, FIRST_PAINT_MS);
  less(`whole picture, ${nodes} nodes, beside a bare page`, 'ms', whole, bare);
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
  more(`live picture, ${nodes} nodes`, 'frames/s', flow, bare, SMOOTH);
  more(`list scrolled, ${nodes} nodes`, 'frames/s', list, bare, SMOOTH);
  await blank.context().close();
}

/** From the press of a button until a plot of that time is drawn, thinned by the console: everything there is, beside ten minutes. */
async function plots(page) {
  await page.goto(`${base}/#/explore`);
  await page.locator('.plot[data-points]').waitFor();
  const draw = async (name, seconds) => {
    const began = Date.now();
    const long = ({ searchParams: of }) => (Date.parse(of.get('to')) - Date.parse(of.get('from'))) / 1000;
    await Promise.all([page.waitForResponse((reply) => reply.url().includes('/explore/points') && Math.abs(long(new URL(reply.url())) - seconds) < 5), page.getByRole('button', { name, exact: true }).click()]);
    await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
    return Date.now() - began;
  };
  const [long, short] = [[], []];
  let about = '';
  for (let i = 0; i < ROUNDS; i++) {
    short.push(await draw('10 min', 600));
    long.push(await draw('30 d', 2_592_000));
    about = /[\d,]+ readings as [\d,]+ points/.exec(await page.locator('.about').textContent())?.[0] ?? 'no readings';
  }
  less(`plot, ${about}, beside ten minutes`, 'ms', long, short);
  await page.context().close();
}

function print() {
  if (process.argv.includes('--json')) return console.log(JSON.stringify(rows));
  console.table(rows.map(({ more, bar, ...row }) => ({ ...row, ratio: more ? row.value / row.baseline : row.baseline / row.value, bar })));
}
