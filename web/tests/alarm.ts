// An alarm to be acted upon.
import type { Page } from '@playwright/test';
import { ask, expect, real } from './page';

export interface Alarm {
  id: string;
  state: string;
  last_raised_at: string | null;
  acknowledged_by: string | null;
  shelved_until: string | null;
  shelved_by: string | null;
  shelf_reason: string | null;
}
export const alarms = async (page: Page) => (await ask<{ items: Alarm[] }>(page, '/api/v1/alarms?limit=200')).items;

/** Of those that nobody has acknowledged, the one raised last. A real one is cleared when it was quiet for five minutes: it must be young enough to stay. A plant that works raises one every few minutes. */
export async function oneThatStays(page: Page): Promise<string> {
  let id: string | undefined;
  const look = async () => {
    const young = real ? Date.now() - 90_000 : 0;
    const open = (await alarms(page)).filter((one) => one.state === 'active_unacknowledged' && !one.shelved_until && Date.parse(one.last_raised_at ?? '') > young);
    id = open.sort((a, b) => b.last_raised_at!.localeCompare(a.last_raised_at!))[0]?.id;
    return id;
  };
  await expect.poll(look, { timeout: 240_000 }).toBeTruthy();
  return id!;
}
