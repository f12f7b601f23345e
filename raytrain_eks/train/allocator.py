"""Memory that a step frees stays with the process, for the next step to take.

glibc gives blocks of 128 KiB and more back to the kernel once they are free (mallopt(3): M_MMAP_THRESHOLD,
M_TRIM_THRESHOLD), and the next step's logits are then mapped, faulted in and zeroed anew. The same shapes come again at
every step, so nothing is gained by that. GPUs have torch's own caching allocator instead.
"""

import ctypes
import os
import platform

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
"""Names of malloc.h."""
LARGEST = 32 << 20
"""Bytes; larger blocks are mapped anew where no heap has room. The most that glibc takes (HEAP_MAX_SIZE / 2)."""
OWN = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
"""Variables by which a person chose for themselves, another allocator included."""


def keep_freed_memory() -> bool:
    """Let malloc keep blocks of up to LARGEST bytes that were freed; whether it was told so.

    False, and nothing is changed, where the C library is not glibc or the environment has a choice of its own.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith(OWN) for name in os.environ):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # The pad keeps whole heaps of threads, which is where Ray Train runs the loop.
    wanted = {_MMAP_THRESHOLD: LARGEST, _TRIM_THRESHOLD: 2**31 - 1, _TOP_PAD: 2 * LARGEST}
    taken = [mallopt(name, value) == 1 for name, value in wanted.items()]
    return all(taken)
