// What every test of the page needs: a signed-in page that fails the test on console errors, on requests to other hosts and on errors of the policy.
import { expect, test as base, type Page } from '@playwright/test';

export const real = Boolean(process.env.HOLDFAST_CONSOLE);
export const operator = process.env.HOLDFAST_OPERATOR_TOKEN ?? 'mock-operator';
export const viewer = process.env.HOLDFAST_VIEWER_TOKEN ?? 'mock-viewer';
/** An event that was delivered and is stored. */
export const delivered = process.env.HOLDFAST_DELIVERED_EVENT ?? '0191c2f0-5b1a-7cc3-98ab-5f1f4be0a1d2';

interface Watched {
  /** Refusals that a test asks for, as they appear in the browser's console. */
  allow: (pattern: RegExp) => void;
}

export const test = base.extend<{ watched: Watched }>({
  watched: [
    async ({ page, baseURL }, use) => {
      const said: string[] = [];
      // Who is not signed in yet is told so once: that is how the page finds out.
      const allowed: RegExp[] = [/401.*\/api\/v1\/me$/];
      page.on('console', (message) => {
        if (message.type() === 'error' || message.type() === 'warning') said.push(`${message.text()} ${message.location().url}`);
      });
      page.on('pageerror', (failure) => said.push(String(failure.stack ?? failure)));
      page.on('request', (request) => {
        if (!request.url().startsWith(baseURL!) && !request.url().startsWith('data:') && !request.url().startsWith('blob:')) said.push(`a request to another host: ${request.url()}`);
      });
      await use({ allow: (pattern) => void allowed.push(pattern) });
      expect(said.filter((line) => !allowed.some((pattern) => pattern.test(line)))).toEqual([]);
    },
    { auto: true },
  ],
});

export async function signIn(page: Page, token = operator, to = '/') {
  await page.goto(to);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await expect(page.locator('#main h1')).toBeVisible();
}

/** Opens a view or a page of it, and waits until it is that one and has its answers: until then the one before is still there. */
export async function open(page: Page, view: string) {
  await page.goto(`/#/${view}`);
  const path = view.split('?')[0]!.split('/');
  await expect(page.locator('#main h1')).toHaveText(path.length > 1 ? path.at(-1)! : new RegExp(`^${path[0]}`, 'i'));
  await expect(page.locator('#main .loading')).toHaveCount(0);
  await expect(page.getByText('This view broke.')).toHaveCount(0);
  if (path[0] === 'nodes' && path.length === 1) await expect(page.locator('tr.node a').first()).toBeVisible();
}

/** The views that this console has: the real one may have no historian and no schedules. */
export async function views(page: Page): Promise<string[]> {
  return (await ask<{ views: string[] }>(page, '/api/v1/me')).views;
}

/** What the console answers to the page, from the page. */
export async function ask<T>(page: Page, path: string): Promise<T> {
  return page.evaluate(async (from) => (await (await fetch(from)).json()) as T, path);
}

/** A number as the page writes it. */
export function number(text: string | null): number {
  const found = /-?[\d,]+(\.\d+)?\s?[KM]?/i.exec(text ?? '');
  if (!found) return Number.NaN;
  const digits = found[0].replaceAll(',', '').trim();
  const factor = /k$/i.test(digits) ? 1e3 : /m$/i.test(digits) ? 1e6 : 1;
  return Number.parseFloat(digits) * factor;
}

export { expect };
