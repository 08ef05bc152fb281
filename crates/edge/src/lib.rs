//! The site: ingress of node data into Postgres, node registry, liveness.
