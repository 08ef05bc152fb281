-- Who may write or read, and what. The token itself is never stored.

CREATE TABLE api_tokens (
    id           uuid        PRIMARY KEY,
    name         text        NOT NULL,
    hash         bytea       NOT NULL,
    role         text        NOT NULL,
    tenants      uuid[],
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    CONSTRAINT api_tokens_hash_key UNIQUE (hash),
    CONSTRAINT api_tokens_hash CHECK (octet_length(hash) = 32),
    CONSTRAINT api_tokens_name CHECK (char_length(name) BETWEEN 1 AND 100),
    CONSTRAINT api_tokens_role CHECK (role IN ('admin', 'edge', 'operator', 'viewer')),
    CONSTRAINT api_tokens_tenants CHECK (tenants IS NULL OR cardinality(tenants) >= 1)
);
