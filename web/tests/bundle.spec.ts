// What the browser fetches, in bytes. Bytes are the same on every machine, times are not: those are measured by `./dev bench page`.
import { expect, test } from '@playwright/test';
import { readdirSync, readFileSync } from 'node:fs';
import { gzipSync } from 'node:zlib';

/** The most that may be fetched, compressed, before the first view is seen, and for all views together. */
const FIRST_VIEW = 50_000;
const ALL = 130_000;

const dist = new URL('../dist/', import.meta.url);
const text = (name: string) => readFileSync(new URL(name, dist), 'utf8');
const packed = (names: Iterable<string>) => [...names].reduce((sum, name) => sum + gzipSync(readFileSync(new URL(name, dist))).length, 0);

/** What a file fetches with it: imports that are not made on demand. */
function withImports(name: string, seen = new Set<string>()): Set<string> {
  if (seen.has(name)) return seen;
  seen.add(name);
  if (name.endsWith('.js')) for (const [, other] of text(name).matchAll(/(?:from|import)\s*["']\.\/([^"']+)["']/g)) withImports(`assets/${other}`, seen);
  return seen;
}

test('the page is small before its first view, and altogether', () => {
  const assets = readdirSync(new URL('assets/', dist)).map((name) => `assets/${name}`);
  const html = text('index.html');
  const first = new Set(['index.html', 'theme.js']);
  for (const name of assets) if (html.includes(name) || /\/Flow-[^/]+$/.test(name)) withImports(name, first);
  // The styles of what a view imports are fetched beside it.
  for (const name of [...first]) {
    const [, part] = /assets\/(.+)-[^-]+\.js$/.exec(name) ?? [];
    for (const style of assets) if (part && style.startsWith(`assets/${part}-`) && style.endsWith('.css')) first.add(style);
  }
  expect([...first].filter((name) => /\/Flow-/.test(name)), 'the first view was found').toHaveLength(2);
  const sizes = { first: packed(first), all: packed([...assets, 'index.html', 'theme.js']) };
  console.log(`  before the first view ${sizes.first} bytes, all of it ${sizes.all} bytes, compressed`);
  expect(sizes.first).toBeLessThanOrEqual(FIRST_VIEW);
  expect(sizes.all).toBeLessThanOrEqual(ALL);
  // Plots are a third of it, and no part of the first view.
  expect([...first].filter((name) => /\/Plot-/.test(name))).toEqual([]);
});
