"""EC2 instance facts as data: counts, allocatable resources, accelerators, EFA, each row with a source and a date.

Pure. No number about an instance stands anywhere else in the code.
"""
