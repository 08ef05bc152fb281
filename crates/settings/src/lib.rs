//! Configuration: one TOML file, a section a role, every key overridable by environment, with provenance.
