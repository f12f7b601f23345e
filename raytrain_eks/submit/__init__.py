"""Runs a job on a target: this machine, a Ray cluster through its Jobs API, Kubernetes through a RayJob.

One path for all of them; local is a real Ray cluster with a real job server.
"""
