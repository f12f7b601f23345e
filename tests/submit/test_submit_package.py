"""What of a working directory goes to a cluster, and how much that is."""

import os
import zipfile
from pathlib import Path

import pytest

from raytrain_eks.submit import package
from raytrain_eks.submit.errors import TooLarge


def put(root: Path, *names: str, size: int = 3) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * size)


def names(root: Path, **options) -> list[str]:
    return [file.name for file in package.of_folder(root, **options).files]


def test_environments_caches_data_and_checkpoints_stay_behind(tmp_path):
    put(tmp_path, "train.py", "pkg/data/reader.py", "pkg/runs.py")
    put(tmp_path, ".git/config", "pkg/__pycache__/a.pyc", ".venv/bin/python", "data/big.bin", "runs/q/job.yaml")
    put(tmp_path, "checkpoints/step-1/x", "node_modules/x.js", ".mypy_cache/x", "my.egg-info/PKG-INFO")
    put(tmp_path, "odd-name/pyvenv.cfg", "odd-name/lib/x.py", "elsewhere/run.json", "elsewhere/attempts/0001.json")
    assert names(tmp_path) == ["pkg/data/reader.py", "pkg/runs.py", "train.py"]


def test_a_git_file_of_a_worktree_stays_behind(tmp_path):
    put(tmp_path, "a.py", ".git")
    assert names(tmp_path) == ["a.py"]


def test_ignore_files_of_every_folder_count_and_take_defaults_in_again(tmp_path):
    put(tmp_path, "a.py", "b.log", "sub/c.py", "sub/d.log", "sub/keep.log", "data/small.csv")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub" / ".rayignore").write_text("!keep.log\nc.py\n")
    (tmp_path / ".rayignore").write_text("!/data/\n.rayignore\n.gitignore\n")
    assert names(tmp_path) == ["a.py", "data/small.csv", "sub/keep.log"]


def test_a_folder_inside_a_checkout_obeys_the_rules_above_it(tmp_path):
    put(tmp_path, ".git/HEAD", "work/a.py", "work/x.tmp", "work/deep/y.tmp", "work/deep/z.gen")
    (tmp_path / ".gitignore").write_text("*.tmp\n/work/deep/z.gen\n")
    assert names(tmp_path / "work") == ["a.py"]


def test_the_storage_inside_the_folder_stays_behind(tmp_path):
    put(tmp_path, "a.py", "my-runs/q/metrics.jsonl")
    assert names(tmp_path, without=(tmp_path / "my-runs",)) == ["a.py"]


def test_links_are_followed_once(tmp_path):
    put(tmp_path, "work/a.py", "outside/lib.py")
    (tmp_path / "work" / "lib").symlink_to(tmp_path / "outside")
    (tmp_path / "work" / "loop").symlink_to(tmp_path / "work")
    (tmp_path / "work" / "broken").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "work" / "pipe")
    assert names(tmp_path / "work") == ["a.py", "lib/lib.py"]


@pytest.mark.parametrize("name", [b"back\\slash.py", b"c:drive.py", b"not-utf8-\xff.py"])
def test_names_that_ray_does_not_unpack_are_said(tmp_path, name):
    (tmp_path / os.fsdecode(name)).write_text("x")
    packed = package.of_folder(tmp_path)
    assert packed.files == ()
    assert packed.unfit == (os.fsdecode(name),)


def test_over_the_limit_the_ten_largest_are_named(tmp_path):
    for index in range(12):
        put(tmp_path, f"models/part-{index:02d}.bin", size=1000 * (index + 1))
    put(tmp_path, "train.py")
    packed = package.of_folder(tmp_path)
    packed.check(packed.size)
    with pytest.raises(TooLarge) as caught:
        packed.check(packed.size - 1)
    message = str(caught.value)
    assert caught.value.code == 3
    shown = [line.split()[-1] for line in message.splitlines() if line.startswith("    ")]
    assert shown == [f"models/part-{index:02d}.bin" for index in range(11, 1, -1)]
    assert str(tmp_path) in message
    assert ".rayignore" in message


def test_many_small_files_are_named_by_folder(tmp_path):
    put(tmp_path, *(f"images/{index}.png" for index in range(300)), size=10)
    put(tmp_path, "train.py", size=20)
    with pytest.raises(TooLarge, match="images/"):
        package.of_folder(tmp_path).check(100)


def test_the_same_files_have_the_same_hash_and_come_out_as_they_went_in(tmp_path):
    for root in (tmp_path / "one", tmp_path / "two"):
        put(root, "b.py", "a/c.py")
        (root / "run.sh").write_text("echo")
        (root / "run.sh").chmod(0o755)
    os.utime(tmp_path / "two" / "b.py", (1, 1))
    hashes = []
    for root in (tmp_path / "one", tmp_path / "two"):
        with package.of_folder(root, extra={"a b.yaml": b"kind: Job"}).archive() as (archive, digest):
            hashes.append(digest)
            from ray._private.runtime_env.packaging import unzip_package

            out = root.with_suffix(".out")
            unzip_package(str(archive), str(out), remove_top_level_directory=False, unlink_zip=False)
        assert not archive.exists()
        assert (out / "a b.yaml").read_bytes() == b"kind: Job"
        assert (out / "a" / "c.py").read_bytes() == b"xxx"
        assert os.access(out / "run.sh", os.X_OK)
        assert not os.access(out / "b.py", os.X_OK)
    assert hashes[0] == hashes[1]
    put(tmp_path / "two", "b.py", size=4)
    with package.of_folder(tmp_path / "two", extra={"a b.yaml": b"kind: Job"}).archive() as (_, digest):
        assert digest != hashes[0]


def test_a_file_that_vanishes_while_packing_is_no_failure(tmp_path):
    put(tmp_path, "a.py", "b.py")
    packed = package.of_folder(tmp_path)
    (tmp_path / "a.py").unlink()
    with packed.archive() as (archive, _):
        assert zipfile.ZipFile(archive).namelist() == ["b.py"]


def test_the_library_travels_with_what_a_ray_image_lacks():
    found = {file.name for file in package.of_library().files}
    assert {"raytrain_eks/__init__.py", "raytrain_eks/submit/package.py", "raytrain_eks/py.typed"} <= found
    assert "ruamel/yaml/__init__.py" in found
    assert not any("__pycache__" in name for name in found)


def test_a_folder_that_is_none_is_an_error_with_its_name(tmp_path):
    with pytest.raises(NotADirectoryError):
        package.of_folder(tmp_path / "nowhere")
