"""Sweeps: many ordinary runs of one job, chosen, watched and stopped by what their journal says.

Ray Tune places trials, reserves each one's resources whole and reuses its processes. What it is told to do is decided
here and written to the sweep's journal first, so that a sweep that was killed goes on from the journal alone. Training
itself is the train room's; nothing here looks into a step.
"""
