"""Reading, tokenising, packing and streaming with Ray Data.

The order of samples is a function of seed, epoch and data alone, at any number of workers.
"""
