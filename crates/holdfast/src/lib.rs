//! The binary: roles, up, simulation and the operator's commands.
