//! Dev-only: shared throw-away servers, a database per test, processes, waiting for conditions.
