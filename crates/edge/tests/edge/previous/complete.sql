UPDATE sync_outbox SET status = 'acked', lease_token = NULL, claimed_by = NULL, claimed_at = NULL, lease_expires_at = NULL, updated_at = now()
WHERE id = ANY ($1::text[]::uuid[]) AND lease_token = $2::uuid
  AND CASE WHEN status IN ('claimed', 'sending') THEN true ELSE false END
