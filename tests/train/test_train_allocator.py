"""Freed memory is kept: counted in page faults, in a process of its own."""

import os
import platform
import subprocess
import sys

import pytest

from raytrain_eks.train.allocator import OWN, keep_freed_memory

PROGRAM = """
import resource, sys, threading
from raytrain_eks.train.allocator import keep_freed_memory
if sys.argv[1] == "kept":
    assert keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def steps():
    import ctypes
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    def step():
        # As activations: all live at once, and are gone at the end.
        blocks = [libc.malloc(int(sys.argv[2])) for _ in range(8)]
        for block in blocks:
            libc.memset(block, 1, int(sys.argv[2]))
        for block in blocks:
            libc.free(block)
    step()
    before = faults()
    for _ in range(20):
        step()
    print(faults() - before)
thread = threading.Thread(target=steps)
thread.start()
thread.join()
"""
only_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def faults(way: str, size: int) -> int:
    env = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    words = [sys.executable, "-c", PROGRAM, way, str(size)]
    return int(subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=60).stdout)


@only_glibc
@pytest.mark.parametrize("size", [2 << 20, pytest.param(16 << 20, marks=pytest.mark.slow)])
def test_a_thread_finds_its_freed_memory_again(size):
    pages_of_a_step = 8 * size // 4096
    assert faults("kept", size) < pages_of_a_step
    assert faults("as it is", size) > 10 * pages_of_a_step


@pytest.mark.parametrize("variable", ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD"])
def test_a_choice_of_the_person_stands(monkeypatch, variable):
    monkeypatch.setenv(variable, "")
    assert not keep_freed_memory()


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert not keep_freed_memory()
