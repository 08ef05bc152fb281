// Dead letters to be acted upon: a system that works has none of its own, and a test that redrives them leaves none to the next.
import { execFileSync } from 'node:child_process';
import type { Page } from '@playwright/test';
import { delivered, expect, real } from './page';

/** Five events that were delivered, at once or none; not the one that the page is asked about. */
const SITE = `UPDATE sync_outbox SET status = 'dlq', failed_at = now(), dlq_reason = 'invalid_unit'
    WHERE id IN (SELECT id FROM sync_outbox WHERE stream IS NOT NULL AND status = 'acked' AND id <> '${delivered}' ORDER BY id LIMIT 5)
        AND (SELECT count(*) FROM sync_outbox WHERE stream IS NOT NULL AND status = 'acked') > 5`;
/** Of several tags, so that one cause has several lines; five at once or none. */
const HISTORIAN = `INSERT INTO historian_dead_letters (consumer_group, message_id, topic, routing_key, headers, body, cause_code, cause_message, attempts, dead_lettered_at)
    SELECT 'scada-historian', event_id::text, 'scada.l2.telemetry', tag, '{}', convert_to(json_build_object(
        'eventId', event_id, 'timestamp', to_char(timestamp AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        'asset', json_build_object('plant', plant, 'area', area, 'unit', unit_name), 'tag', tag, 'value', value, 'unit', unit, 'quality', quality,
        'category', 'telemetry', 'nodeId', node_id)::text, 'UTF8'), 'incompatible_schema', 'the schema has major version 2, this historian reads 1', 1, now()
    FROM fresh WHERE (SELECT count(*) FROM fresh) >= 5 ORDER BY created_at LIMIT 5`;
/** What was never given up before. */
const FRESH = `fresh AS (SELECT * FROM telemetry t WHERE NOT EXISTS (SELECT FROM historian_dead_letters d WHERE d.message_id = t.event_id::text) ORDER BY created_at LIMIT 5)`;

/** Five rows change, once there are five. */
async function change(database: string, sql: string, first = '') {
  const counted = `WITH ${first}given AS (${sql} RETURNING 1) SELECT count(*) FROM given`;
  const once = () => execFileSync('psql', ['-qAt', '-h', process.env.HOLDFAST_POSTGRES!, '-U', 'postgres', '-d', database, '-c', counted], { encoding: 'utf8' }).trim();
  await expect.poll(once, { timeout: 60_000, message: `five events in ${database}` }).toBe('5');
}

/** Gives up some events of the site and of the historian by hand. The page says so a moment later. */
export async function giveUp(page: Page) {
  if (!real) {
    expect((await page.request.post('/mock/give-up')).status()).toBe(204);
    return;
  }
  await change('edge', SITE);
  await change('scada_historian', HISTORIAN, `${FRESH}, `);
}
