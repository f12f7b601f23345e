"""The working directory on its way to a cluster: which files go, how much that is, and the archive.

Measured before anything is uploaded. Left out by default: version control, environments, caches, places of credentials
(`.env`, `.aws`, `.kube`, `.ssh`, `.netrc`), and the folders `data`, `runs`, `checkpoints` and the like at the top;
`.gitignore` and `.rayignore` of every folder are honoured, and `!pattern` in them takes a default in again, except for
version control, which git itself never adds whatever `!*` says.
"""

import contextlib
import hashlib
import ntpath
import os
import stat
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from raytrain_eks.submit.errors import TooLarge
from raytrain_eks.submit.ignore import Pattern, patterns, verdict

LIMIT = 100 * 2**20
"""Bytes of a working directory, unpacked. Ray's own limit is that of a gRPC message, 512 MiB, and is met late."""

NEVER = (".git", ".hg", ".svn")
DEFAULTS = patterns(
    """\
.venv/
venv/
node_modules/
__pycache__/
*.pyc
.*_cache/
.hypothesis/
.ipynb_checkpoints/
.tox/
.nox/
.terraform/
*.egg-info/
.DS_Store
.env
.aws/
.kube/
.ssh/
.netrc
/data/
/datasets/
/runs/
/checkpoints/
/outputs/
/wandb/
/mlruns/
""".splitlines()
)
IGNORE_FILES = (".gitignore", ".rayignore")
ALIAS = ".raytrain/job.yaml"
"""Where a job file travels that is not in the working directory, or whose name no archive can carry."""


@dataclass(frozen=True)
class File:
    """A file that goes."""

    name: str
    """Its path in the package, with `/`."""
    path: Path
    size: int
    mode: int
    content: bytes | None = None
    """What is sent; None: what the file holds when it is packed."""


@dataclass(frozen=True)
class Package:
    """Files that travel to a cluster together."""

    root: Path
    files: tuple[File, ...]
    """By name."""
    unfit: tuple[str, ...] = field(default=())
    """Names that Ray does not unpack (backslash, drive letter, not Unicode)."""

    @property
    def size(self) -> int:
        """Bytes, unpacked."""
        return sum(file.size for file in self.files)

    def check(self, limit: int = LIMIT) -> None:
        """Raises TooLarge, with the ten largest paths, when it is over `limit` bytes."""
        if self.size <= limit:
            return
        shown = [f"    {mebibytes(size):>12}  {name}" for name, size in self.largest()]
        wanted = -(-self.size // 2**20)
        raise TooLarge(
            "\n".join(
                [
                    f"{self.root}: {mebibytes(self.size)} in {len(self.files)} files would be uploaded, "
                    f"the limit is {mebibytes(limit)}",
                    "  the largest:",
                    *shown,
                    "  leave out what the job does not need in .rayignore, choose another folder with --working-dir,",
                    f"  or raise the limit with --max-upload {wanted}Mi",
                ]
            )
        )

    def largest(self, count: int = 10) -> list[tuple[str, int]]:
        """The largest files with their bytes; folders (what lies in them directly) when no few files stand out."""
        files = Counter({file.name: file.size for file in self.files}).most_common(count)
        if sum(size for _, size in files) * 2 >= self.size:
            return files
        folders: Counter[str] = Counter()
        for file in self.files:
            folders[file.name.rpartition("/")[0] + "/"] += file.size
        return folders.most_common(count)

    @contextlib.contextmanager
    def archive(self, level: int = 6) -> Iterator[tuple[Path, str]]:
        """The zip file and the hash of its contents (32 hex digits of SHA-256); the file is removed afterwards.
        `level` is zlib's, 0 to 9.

        The same files give the same hash on every machine. A file that vanished since it was measured is left out.
        """
        digest = hashlib.sha256()
        with tempfile.TemporaryDirectory(prefix="raytrain-") as folder:
            target = Path(folder) / "package.zip"
            with zipfile.ZipFile(target, "w") as archive:
                for file in self.files:
                    try:
                        content = file.path.read_bytes() if file.content is None else file.content
                    except FileNotFoundError:
                        continue
                    about = zipfile.ZipInfo(file.name)
                    about.external_attr = (stat.S_IFREG | (0o755 if file.mode & 0o100 else 0o644)) << 16
                    archive.writestr(about, content, zipfile.ZIP_DEFLATED, level)
                    head = f"{file.name}\0{about.external_attr}\0{len(content)}\0".encode()
                    digest.update(head + hashlib.sha256(content).digest())
            yield target, digest.hexdigest()[:32]


def of_folder(root: Path, *, without: tuple[Path, ...] = (), extra: dict[str, bytes] | None = None) -> Package:
    """What goes of a working directory: all but what is ignored and the folders `without`; `extra` (name in the
    package -> content) goes in any case. Raises OSError when the folder cannot be read."""
    root = root.resolve()
    if not root.is_dir():
        raise NotADirectoryError(20, "not a folder", str(root))
    found: dict[str, File] = {}
    unfit = []
    for name, path in _walk(root, {folder.resolve() for folder in without}):
        if not fits(name):
            unfit.append(name)
        elif (file := _measured(name, path)) is not None:
            found[name] = file
    for name, content in (extra or {}).items():
        found[name] = File(name, root / name, len(content), 0o644, content)
    return Package(root, tuple(found[name] for name in sorted(found)), tuple(unfit))


def of_library() -> Package:
    """raytrain-eks itself and the one pure-Python library it needs that Ray's images lack, to go before a
    cluster's own path."""
    import raytrain_eks

    root = Path(raytrain_eks.__file__).parent
    files = [_measured(f"raytrain_eks/{name}", path) for name, path in _walk(root, set()) if fits(name)]
    import ruamel.yaml

    yaml = Path(ruamel.yaml.__file__).parent
    files += [_measured(f"ruamel/yaml/{path.name}", path) for path in sorted(yaml.glob("*.py"))]
    return Package(root, tuple(sorted((file for file in files if file), key=lambda file: file.name)))


def fits(name: str) -> bool:
    """Whether Ray unpacks a file of this name (ray._private.runtime_env.packaging.unzip_package skips others)."""
    unicode = not any("\ud800" <= letter <= "\udfff" for letter in name)
    return unicode and "\\" not in name and not ntpath.splitdrive(name)[0] and not name.startswith("/")


def mebibytes(size: int) -> str:
    """A size for people: `812.3 MiB`."""
    return f"{size / 2**20:.1f} MiB"


def _measured(name: str, path: Path) -> File | None:
    """The file when it is a regular one (through links); None for sockets, devices and links to nothing."""
    try:
        about = path.stat()
    except OSError:
        return None
    return File(name, path, about.st_size, about.st_mode) if stat.S_ISREG(about.st_mode) else None


Layer = tuple[int, list[Pattern]]
"""Length of the path down to the folder of an ignore file, and its patterns."""


def _walk(root: Path, without: set[Path]) -> Iterator[tuple[str, Path]]:
    """Name relative to `root` and path of every file that is not ignored."""
    top, layers = _above(root)
    base = "" if top == root else f"{root.relative_to(top).as_posix()}/"
    start = len(base)
    pending: list[tuple[str, Path, list[Layer], frozenset[Path]]] = [(base, root, layers, frozenset())]
    while pending:
        prefix, folder, layers, above = pending.pop()
        real = folder.resolve()
        if real in above or real in without:
            continue
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except PermissionError:
            continue
        layers = [*layers, *_layers(folder, len(prefix))]
        for entry in entries:
            if entry.name in NEVER:
                continue
            name = prefix + entry.name
            is_folder = entry.is_dir()
            if _ignored(layers, name, name[start:], is_folder) or (is_folder and _is_foreign(Path(entry.path))):
                continue
            if is_folder:
                pending.append((f"{name}/", Path(entry.path), layers, above | {real}))
            else:
                yield name[start:], Path(entry.path)


def _ignored(layers: list[Layer], name: str, from_root: str, folder: bool) -> bool:
    decided = verdict(DEFAULTS, from_root, folder=folder)
    for length, rules in layers:
        said = verdict(rules, name[length:], folder=folder)
        decided = decided if said is None else said
    return bool(decided)


def _is_foreign(folder: Path) -> bool:
    """A Python environment (PEP 405) or a run folder, whatever it is called."""
    return (folder / "pyvenv.cfg").is_file() or ((folder / "run.json").is_file() and (folder / "attempts").is_dir())


def _above(root: Path) -> tuple[Path, list[Layer]]:
    """The top of the git checkout that `root` is in (`root` itself without one), and the rules between the two."""
    for top in (root, *root.parents):
        if (top / ".git").exists():
            between = [*reversed(root.parents[: len(root.relative_to(top).parts)])]
            layers: list[Layer] = []
            for folder in between:
                length = len(folder.relative_to(top).as_posix()) + 1 if folder != top else 0
                layers += list(_layers(folder, length))
            return top, layers
    return root, []


def _layers(folder: Path, length: int) -> Iterator[Layer]:
    for name in IGNORE_FILES:
        with contextlib.suppress(OSError):
            yield length, patterns((folder / name).read_text(encoding="utf-8", errors="surrogateescape").split("\n"))
