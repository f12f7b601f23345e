"""What a person writes: Job, Cluster and Sweep as one tree of models, read from YAML 1.2 with line and column.

Pure: imports no ray, no torch, no Kubernetes client; touches no network. A mistake becomes a `Problem` with its place,
its value, the rule and the fix, and all problems of a file are found in one run.
"""
