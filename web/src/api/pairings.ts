// Pairings that must not compile. `npm run check` reads this file; nothing imports it, so it is in no bundle. A line that begins to compile is an error there.
import { get, place, post } from './client';
import type { Alarm, NodePage, Picture } from './types';

export async function wrong() {
  // @ts-expect-error there is no such path
  await get('/api/v1/node');
  // @ts-expect-error the answer is another
  const page: NodePage = await get('/api/v1/picture');
  // @ts-expect-error a node has a site
  await get('/api/v1/nodes/{site}/{node_id}', { node_id: 'barn-1' });
  // @ts-expect-error this is not asked for
  await get('/api/v1/alarms', { sevrity: 'HIGH' });
  // @ts-expect-error a limit is a number
  await get('/api/v1/alarms', { limit: 'many' });
  // @ts-expect-error a stream of events is not read at once
  await get('/api/v1/stream');
  // @ts-expect-error alarms are looked at, and acted on one by one
  await post('/api/v1/alarms', {});
  // @ts-expect-error a shelf has a reason
  await post('/api/v1/alarms/{id}/shelve', { id: 'a' }, { minutes: 5 });
  // @ts-expect-error a table of values has a time
  place('/api/v1/explore/csv', { series: ['a'] });
  // And these do.
  const picture: Picture = await get('/api/v1/picture');
  const alarms: Alarm[] = (await get('/api/v1/alarms', { severity: 'HIGH', limit: 3 })).items;
  const alarm: Alarm = await post('/api/v1/alarms/{id}/shelve', { id: 'a' }, { minutes: 5, reason: 'looked at' });
  return [page, picture, alarms, alarm];
}
