"""What is missing or wrong on this machine before money is spent, and the job that looks at a cluster's workers.

Checks read and measure; they start nothing, change nothing but a probe file that they remove, and show no secret: of a
credential they say where it was found, never what it is.
"""
