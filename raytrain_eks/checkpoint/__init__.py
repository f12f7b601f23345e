"""Snapshot, commit, verify, keep and restore: a checkpoint exists when its manifest is written, and not before."""
