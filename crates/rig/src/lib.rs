//! Private servers under a folder (Postgres, Mosquitto) and links that can be cut. Used by up and by testkit.
