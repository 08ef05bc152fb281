//! An append-only log of opaque bytes that survives power cuts. Synchronous.
