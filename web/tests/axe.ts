import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from '@playwright/test';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What axe finds, one line each. It is run in the page's own context through the debugger, which the page's policy does not stop. */
export async function check(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return page.evaluate(async () => {
    type Result = { violations: { id: string; help: string; nodes: { html: string; failureSummary: string }[] }[] };
    const { violations } = (await (window as unknown as { axe: { run: (options: object) => Promise<Result> } }).axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })) as Result;
    return violations.flatMap((one) => one.nodes.slice(0, 3).map((node) => `${one.id}: ${one.help}: ${node.html.slice(0, 160)} ${node.failureSummary.replaceAll('\n', ' ').slice(0, 200)}`));
  });
}
