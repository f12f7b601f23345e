"""How code gets to Kubernetes: what is in the archive, which way it takes, that it is unpacked to the same bytes."""

import io
import lzma
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from raytrain_eks.submit import eks_code
from raytrain_eks.submit.eks_code import ARCHIVE, CONFIG_MAP_LIMIT, PACKED, UNPACK, UNPACKED, pack
from raytrain_eks.submit.errors import TargetError, TooLarge
from raytrain_eks.submit.package import File, Package, of_folder, of_library
from raytrain_eks.submit.target import Submission


@pytest.fixture(autouse=True)
def library(monkeypatch) -> None:
    """A small library in the place of raytrain-eks, which takes a second to pack."""
    files = [
        File(name, Path(name), 4, 0o644, b"pass")
        for name in ("raytrain_eks/__init__.py", "raytrain_eks/train/driver.py", "ruamel/yaml/main.py")
    ]
    monkeypatch.setattr(eks_code, "of_library", lambda: Package(Path(), tuple(files)))


MUCH = 200_000


@pytest.fixture
def narrow(monkeypatch) -> None:
    """A ConfigMap that takes little, so that tests need not pack much."""
    monkeypatch.setattr(eks_code, "CONFIG_MAP_LIMIT", MUCH // 2)


def submission(folder: Path) -> Submission:
    (folder / "job.yaml").write_text("kind: Job")
    return Submission(
        id="q-1",
        run="q",
        job_file="job.yaml",
        script=None,
        options=(),
        folder=str(folder),
        package=of_folder(folder),
        environment={},
        metadata={},
    )


def packed(folder: Path, how: str = "auto", storage: str = "/shared/runs", mounts: tuple[str, ...] = ("/shared",)):
    told: list[str] = []
    return pack(submission(folder), how, storage=storage, mounts=mounts, say=told.append), told


def names(content: bytes) -> set[str]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return set(archive.namelist())


def test_what_is_small_goes_in_a_configmap_with_the_library(tmp_path, monkeypatch):
    monkeypatch.setattr(eks_code, "of_library", of_library)
    code, _ = packed(tmp_path)
    assert (code.how, code.uri) == ("configmap", f"{UNPACKED}/{ARCHIVE}")
    assert len(code.content) < CONFIG_MAP_LIMIT
    found = names(lzma.decompress(code.content))
    assert {"job.yaml", "raytrain_eks/train/driver.py", "raytrain_eks/catalog/instances.csv"} <= found
    assert "ruamel/yaml/main.py" in found


def test_the_init_container_unpacks_what_ray_takes(tmp_path):
    (tmp_path / "work").mkdir()
    code, _ = packed(tmp_path / "work")
    program = UNPACK.replace(PACKED, str(tmp_path)).replace(UNPACKED, str(tmp_path))
    (tmp_path / f"{ARCHIVE}.xz").write_bytes(code.content)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    assert (tmp_path / ARCHIVE).read_bytes() == lzma.decompress(code.content)
    assert zipfile.is_zipfile(tmp_path / ARCHIVE)


def test_a_checkout_of_the_library_keeps_its_own(tmp_path):
    (tmp_path / "raytrain_eks").mkdir()
    (tmp_path / "raytrain_eks" / "__init__.py").write_text("# mine")
    code, _ = packed(tmp_path)
    with zipfile.ZipFile(io.BytesIO(lzma.decompress(code.content))) as archive:
        assert archive.read("raytrain_eks/__init__.py") == b"# mine"
        assert "raytrain_eks/train/driver.py" not in archive.namelist()
        assert "ruamel/yaml/main.py" in archive.namelist()


def test_the_image_brings_all_but_the_job_file(tmp_path):
    (tmp_path / "much").write_bytes(os.urandom(MUCH))
    code, _ = packed(tmp_path, "image")
    assert names(lzma.decompress(code.content)) == {"job.yaml"}


def test_what_is_large_goes_beside_the_runs(tmp_path, monkeypatch, narrow):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "much").write_bytes(os.urandom(MUCH))
    mount = str(tmp_path / "shared")
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path) == mount)
    code, told = packed(tmp_path / "work", storage=f"{mount}/runs", mounts=(mount,))
    assert (code.how, len(told)) == ("storage", 1)
    code.put(f"{mount}/runs")
    assert code.uri.startswith(f"file://{mount}/runs/.packages/")
    assert names(Path(code.uri.removeprefix("file://")).read_bytes()) >= {"much", "raytrain_eks/__init__.py"}
    s3, _ = packed(tmp_path / "work", storage="s3://bucket/runs/")
    assert s3.uri == f"s3://bucket/runs/{code.name}"


def test_what_no_way_takes_is_refused_with_its_largest_files(tmp_path, narrow):
    (tmp_path / "much").write_bytes(os.urandom(MUCH))
    for how in ("auto", "configmap"):
        with pytest.raises(TooLarge, match=r"a ConfigMap takes 0\.1 MiB(?s:.*)much"):
            packed(tmp_path, how)
    with pytest.raises(TargetError, match="cannot be written from here"):
        packed(tmp_path, "storage")


def test_the_hopeless_is_not_even_tried(tmp_path, monkeypatch):
    (tmp_path / "zeros").write_bytes(bytes(1000))
    monkeypatch.setattr(eks_code, "HOPELESS", 500)
    with pytest.raises(TooLarge, match="a ConfigMap takes"):
        packed(tmp_path)
