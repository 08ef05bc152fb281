WITH asked AS MATERIALIZED (
  SELECT ask_n, ask_tenant::uuid AS ask_tenant, ask_rank, ask_key::uuid AS ask_key,
    coalesce(ask_at, '-infinity'::timestamptz) AS ask_at,
    coalesce(ask_id, '00000000-0000-0000-0000-000000000000')::uuid AS ask_id, ask_take
  FROM unnest($5::text[], $6::int4[], $7::text[], $8::timestamptz[], $9::text[], $10::int4[])
    WITH ORDINALITY AS u(ask_tenant, ask_rank, ask_key, ask_at, ask_id, ask_take, ask_n)), runs AS MATERIALIZED (
  SELECT ask_n, run_id, run_at, run_lost, run_until, row_number() OVER lane AS run_n,
    bool_and(run_open) OVER lane AS run_open
  FROM asked CROSS JOIN LATERAL (
    SELECT id AS run_id, coalesce(occurred_at, created_at) AS run_at, status <> 'pending' AS run_lost,
      CASE WHEN status = 'pending' THEN next_attempt_at <= now()
      WHEN status IN ('claimed', 'sending') THEN lease_expires_at <= now() ELSE false END AS run_open,
      CASE WHEN status = 'pending' THEN next_attempt_at ELSE lease_expires_at END AS run_until
    FROM sync_outbox WHERE tenant_id = ask_tenant AND (-priority) = ask_rank AND coalesce(device_id, id) = ask_key AND NOT finished AND priority <= 0 AND (coalesce(occurred_at, created_at), id) >= (ask_at, ask_id)
    ORDER BY coalesce(occurred_at, created_at), id LIMIT ask_take) r
  WINDOW lane AS (PARTITION BY ask_n ORDER BY run_at, run_id)
), locked AS MATERIALIZED (
  SELECT id AS locked_id FROM sync_outbox
  WHERE id = ANY (ARRAY(SELECT run_id FROM runs WHERE run_n = 1 AND run_open)) AND CASE WHEN status = 'pending' THEN next_attempt_at <= now()
      WHEN status IN ('claimed', 'sending') THEN lease_expires_at <= now() ELSE false END
    AND (SELECT set_config('synchronous_commit', 'off', true)) = 'off'
  FOR UPDATE SKIP LOCKED
), mine AS MATERIALIZED (
  SELECT ask_n AS mine_n FROM runs JOIN locked ON run_id = locked_id
), taken AS (
  UPDATE sync_outbox SET
    status = CASE WHEN status <> 'pending' AND attempt_count + 1 >= $4 THEN 'dlq' ELSE 'claimed' END,
    lease_token = CASE WHEN status <> 'pending' AND attempt_count + 1 >= $4 THEN NULL ELSE $2::uuid END,
    claimed_by = CASE WHEN status <> 'pending' AND attempt_count + 1 >= $4 THEN NULL ELSE $1::text END,
    claimed_at = CASE WHEN status <> 'pending' AND attempt_count + 1 >= $4 THEN NULL ELSE now() END,
    lease_expires_at = CASE WHEN status <> 'pending' AND attempt_count + 1 >= $4 THEN NULL ELSE now() + $3::int8 * interval '1 ms' END,
    attempt_count = CASE WHEN status <> 'pending' THEN attempt_count + 1 ELSE attempt_count END,
    last_error_code = CASE WHEN status <> 'pending' THEN 'lease_expired' ELSE last_error_code END,
    last_error_message = CASE WHEN status <> 'pending'
      THEN 'the lease of ' || claimed_by || ' expired' ELSE last_error_message END, updated_at = now(), last_attempt_at = CASE WHEN status <> 'pending' THEN now() ELSE last_attempt_at END,
    failed_at = CASE WHEN status <> 'pending' AND attempt_count + 1 >= $4 THEN now() ELSE failed_at END,
    dlq_reason = CASE WHEN status <> 'pending' AND attempt_count + 1 >= $4 THEN 'max_attempts_exceeded' ELSE dlq_reason END
  WHERE id = ANY (ARRAY(SELECT run_id FROM runs JOIN mine ON ask_n = mine_n WHERE run_open))
    AND CASE WHEN status = 'pending' THEN next_attempt_at <= now()
      WHEN status IN ('claimed', 'sending') THEN lease_expires_at <= now() ELSE false END
  RETURNING id AS taken_id, status = 'claimed' AS taken_live, attempt_count AS taken_attempts,
    last_error_code AS taken_error, id, tenant_id, farm_id, barn_id, device_id, session_id, event_type,
    coalesce(occurred_at, created_at) AS happened_at, trace_id, payload_json::text AS payload_text,
    stream, epoch, seq, extract(epoch FROM now() - created_at)::float8 AS age_seconds
)
SELECT ask_n::int8, run_id::text, run_at, run_n::int8, run_lost,
  CASE WHEN run_n = 1 THEN (extract(epoch FROM run_until - now()) * 1000)::float8 END AS run_wait_ms,
  taken.*
FROM runs LEFT JOIN taken ON taken_id = run_id
ORDER BY ask_n, run_n
