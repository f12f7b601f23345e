"""Makes `.venv-xla`: torch 2.9.1 with torch_xla 2.9.0 for CPU, on top of the project's own environment.

    python tests/xla/environment.py .venv-xla .venv

torch_xla is built against one release of torch, so the two environments cannot be one; everything but torch (Ray,
transformers, pytest) is the project environment's, found behind the new one's own packages on the path.

PyPI's torch for Linux is built for CUDA and asks for 4 GB of NVIDIA's libraries that a CPU never calls, but its loader
wants to find. In their place this writes an empty library per missing name, and one that exports the missing functions,
each returning an error; pip is told of placeholder distributions. Only for tests on a CPU, never for an image: nothing
that touches a GPU works, nor does triton. Needs `cc` and `readelf`.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

TORCH, TORCH_XLA = "torch==2.9.1", "torch_xla==2.9.0"
LIGHT = ("absl-py",)
"""What torch_xla needs beyond the project's environment."""
FOREIGN = re.compile(
    r"(cuda|__cuda|cublas|cusparse|cusolver|cufft|curand|cudnn|cupti|nccl|nvshmem|cuFile|nvrtc|nvJit|nvtx)",
    re.IGNORECASE,
)
"""Names that NVIDIA's libraries define."""


def main(target: Path, base: Path) -> None:
    """Make the environment `target` behind which the packages of `base` are found."""
    venv.create(target, with_pip=False, clear=True)
    packages = next(target.glob("lib/python*/site-packages"))
    behind = next(base.resolve().glob("lib/python*/site-packages"))
    if packages.parent.name != behind.parent.name:
        raise SystemExit(
            f"{base} is of {behind.parent.name}, this is {packages.parent.name}: make both with one Python"
        )
    pip = [str(base / "bin/pip"), "--python", str(target / "bin/python"), "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--no-deps", TORCH, TORCH_XLA, *LIGHT], check=True)
    placeholders(packages)
    libraries(packages / "torch/lib")
    (packages / "project.pth").write_text(f"import site; site.addsitedir({str(behind)!r})\n")
    probe = "import torch, torch_xla; print(torch.__version__, torch_xla.__version__, torch.cuda.is_available())"
    environment = {"PJRT_DEVICE": "CPU", "PATH": "/usr/bin:/bin"}
    subprocess.run([str(target / "bin/python"), "-W", "ignore", "-c", probe], check=True, env=environment)


def placeholders(packages: Path) -> None:
    """Tell pip that what torch asks for beyond the project's environment is here."""
    metadata = next(packages.glob("torch-*.dist-info/METADATA")).read_text()
    for name, version in re.findall(r"^Requires-Dist: ((?:nvidia-[\w-]+|triton))==([\w.]+)", metadata, re.MULTILINE):
        folder = packages / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir(exist_ok=True)
        summary = "Placeholder, for tests on a CPU only"
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
        )
        (folder / "RECORD").write_text(f"{folder.name}/METADATA,,\n{folder.name}/RECORD,,\n")


def libraries(folder: Path) -> None:
    """Put a library for every name that torch's own need and no one has beside them, where the loader looks first."""
    here = sorted(folder.glob("*.so*"))
    needed, functions = set(), set()
    for library in here:
        needed |= set(re.findall(r"\(NEEDED\).*\[(.+)\]", read("-d", library)))
        for line in read("--dyn-syms", library).splitlines():
            fields = line.split()
            if len(fields) >= 8 and fields[6] == "UND" and FOREIGN.match(fields[7]):
                functions.add(fields[7].split("@")[0])
    found = {path.name for path in here}
    missing = sorted(name for name in needed - found if FOREIGN.match(name.removeprefix("lib")))
    source = folder / "placeholder.c"
    for name in missing:
        # ld.so insists on versions of symbols that are looked up in CUDA's own libraries; NCCL's have none.
        defined = sorted(functions) if name.startswith("libnccl") else []
        source.write_text("".join(map(definition, defined)))
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-w", "-O0", f"-Wl,-soname,{name}", "-o", str(folder / name), str(source)],
            check=True,
        )
    source.unlink(missing_ok=True)


def definition(function: str) -> str:
    """C of a function that says it failed."""
    if function.endswith(("GetErrorString", "GetErrorName", "GetLastError")) and not function.startswith("cudaGetLast"):
        return f'const char *{function}(void) {{ return "no CUDA here"; }}\n'
    return f"int {function}(void) {{ return 100; }}\n"


def read(what: str, library: Path) -> str:
    """What readelf says of a library."""
    return subprocess.run(["readelf", "-W", what, str(library)], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
