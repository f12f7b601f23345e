"""What is missing or wrong in a Kubernetes cluster before a job is sent there, against a cluster file or without one.

It reads and asks for rights; it changes nothing, starts nothing and pulls no image.
"""
