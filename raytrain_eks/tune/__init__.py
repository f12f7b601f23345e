"""Sweeps: many ordinary runs, steered by Ray Tune."""
