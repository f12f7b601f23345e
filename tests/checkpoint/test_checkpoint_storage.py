"""A folder and S3 keep the same promises, S3 also behind a proxy that breaks its requests."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from raytrain_eks.checkpoint import s3_write
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.spec.problem import SpecError

KINDS = ["503", "SlowDown", "reset", "truncate", "lost"]


@pytest.fixture(params=["folder", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("s3", "s3 with faults"))])
def storage(request, tmp_path):
    if request.param == "folder":
        return Storage.of(tmp_path / "place").child("runs")
    url, faults = request.getfixturevalue("s3")
    if "faults" in request.param:
        faults.often(seed=7, probability=0.2, kinds=KINDS)
    return Storage.of(f"{url}/some").child("runs")


def test_what_is_written_is_read(storage):
    storage.write("a/b/c.json", b"first")
    storage.write("a/b/c.json", b"0123456789")
    assert storage.read("a/b/c.json") == b"0123456789"
    assert storage.read("a/b/c.json", 2, 3) == b"234"
    assert storage.read("a/b/c.json", start=-4) == b"6789"
    assert storage.read("a/b/c.json", start=-40) == b"0123456789"
    assert storage.read("a/b/c.json", start=4) == b"456789"
    assert storage.size("a/b/c.json") == 10
    assert storage.modified("a/b/c.json") > 1.6e9
    file = storage.open("a/b/c.json")
    buffer = bytearray(5)
    file.read_into(3, memoryview(buffer))
    assert bytes(buffer) == b"34567"
    with pytest.raises(OSError):
        file.read_into(8, memoryview(buffer))
    file.close()


def test_what_is_not_there(storage):
    assert storage.entries("nothing") == []
    assert storage.size("nothing") is None
    assert storage.modified("nothing") is None
    assert not storage.exists("nothing")
    storage.remove("nothing")
    storage.remove_tree("nothing")
    for read in (storage.read, storage.open):
        with pytest.raises(FileNotFoundError):
            read("nothing")


def test_listing(storage):
    for name in ("x/1.json", "x/y/2.json", "x/y/3.json", "z.json"):
        storage.write(name, b"12")
    assert [(e.name, e.is_folder, e.size) for e in storage.entries("x")] == [("1.json", False, 2), ("y", True, 0)]
    assert [e.name for e in storage.entries()] == ["x", "z.json"]
    assert sorted(storage.files()) == [("x/1.json", 2), ("x/y/2.json", 2), ("x/y/3.json", 2), ("z.json", 2)]
    storage.move("x/y", "w/v")
    assert sorted(name for name, _ in storage.files()) == ["w/v/2.json", "w/v/3.json", "x/1.json", "z.json"]
    storage.remove_tree("w")
    storage.remove("z.json")
    assert [name for name, _ in storage.files()] == ["x/1.json"]


def test_only_one_creates(storage):
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: storage.create("lock", b"%d" % number), range(8)))
    assert sum(won) == 1
    assert storage.read("lock") == b"%d" % won.index(True)
    assert not storage.create("lock", b"other")


def test_only_one_exchanges(storage):
    storage.write("owner", b"old")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: storage.exchange("owner", b"old", b"new %d" % number), range(8)))
    assert sum(won) == 1
    assert storage.read("owner") == b"new %d" % won.index(True)
    assert not storage.exchange("owner", b"old", b"other")
    assert not storage.exchange("nobody", b"old", b"new")


def test_a_large_file_appears_at_its_end(storage, monkeypatch):
    monkeypatch.setattr(s3_write, "PART", 5 * 2**20)
    content = os.urandom(12 * 2**20 + 17)
    output = storage.output("big")
    for begin in range(0, len(content), 3 * 2**20):
        output.write(memoryview(content)[begin : begin + 3 * 2**20])
    assert storage.size("big") is None
    output.commit()
    output.abort()
    assert storage.read("big") == content
    dropped = storage.output("dropped")
    dropped.write(memoryview(content)[: 6 * 2**20])
    dropped.abort()
    assert [entry.name for entry in storage.entries()] == ["big"]


def test_lines_are_appended(storage):
    for line in (b"1\n", b"2\n"):
        appender = storage.appender("lines.jsonl")
        appender.write(line)
        appender.close()
    assert storage.read("lines.jsonl") == b"1\n2\n"


def test_writable(storage):
    storage.check_writable()
    assert storage.entries() == []


@pytest.mark.parametrize("place", ["gs://bucket/x", "s3://", "http://x"])
def test_other_schemes_are_refused(place):
    with pytest.raises(SpecError, match="for example s3://"):
        Storage.of(place)


def test_a_place_that_cannot_be_written_is_one_clear_message(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(SpecError, match="not writable"):
        Storage.of(tmp_path / "file").child("runs").check_writable()


@pytest.mark.slow
def test_a_missing_bucket_is_one_clear_message(s3):
    with pytest.raises(SpecError, match="not writable: no such object"):
        Storage.of("s3://no-such-bucket-here/x").check_writable()


@pytest.mark.slow
def test_an_outage_is_an_error_with_the_place_after_all_tries(s3):
    url, faults = s3
    faults.always("SlowDown")
    with pytest.raises(OSError, match=r"SlowDown.*tried 7 times") as raised:
        Storage.of(url).read("x")
    assert raised.value.filename == f"{url}/x"
    assert len(faults.injected) == 7


def test_nobody_sees_half_a_file(tmp_path):
    storage = Storage.of(tmp_path)
    sizes, seen = (10, 200_000), set()
    storage.write("f", b"x" * 10)
    done = threading.Event()

    def reader():
        while not done.wait(0.0005):
            seen.add(len(storage.read("f")))

    thread = threading.Thread(target=reader)
    thread.start()
    for number in range(20):
        storage.write("f", b"x" * sizes[number % 2])
    done.set()
    thread.join()
    assert seen <= set(sizes)
