"""What is missing or wrong on a worker: devices, libraries, network, limits, storage, and how fast an all-reduce is.

It runs where a worker runs: in a pod by hand, or on every node of a Ray cluster by a job. It trains nothing; what it
writes to storage lies in a folder of its own, which it removes.
"""
