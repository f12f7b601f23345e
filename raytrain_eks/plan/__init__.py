"""From spec and catalogue to decisions: what fits, which parallelism, how many processes and micro-batches.

Pure. Every decision carries the rule and the fact that it follows from, so that `explain` can name them.
"""
