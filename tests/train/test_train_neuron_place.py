"""What a worker finds out about its machine: made-up /sys trees, and this machine's own addresses."""

import resource
import socket

import pytest

from raytrain_eks.train.neuron_place import free_ports, has_efa, instance_type, interface_of, look, raise_open_files


@pytest.mark.parametrize(
    ("vendor", "expected"), [("Amazon EC2", "trn1.32xlarge"), ("QEMU", ""), (None, "")], ids=["ec2", "other", "none"]
)
def test_the_instance_type_is_the_hypervisors(tmp_path, vendor, expected):
    folder = tmp_path / "class/dmi/id"
    folder.mkdir(parents=True)
    if vendor:
        (folder / "sys_vendor").write_text(vendor + "\n")
        (folder / "product_name").write_text("trn1.32xlarge\n")
    assert instance_type(tmp_path) == expected


@pytest.mark.parametrize(("driver", "expected"), [("efa", True), ("mlx5_core", False), (None, False)])
def test_efa_is_found_by_its_driver(tmp_path, driver, expected):
    if driver:
        (tmp_path / "bus/drivers" / driver).mkdir(parents=True)
        device = tmp_path / "class/infiniband/rdmap0/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(tmp_path / "bus/drivers" / driver)
    assert has_efa(tmp_path) is expected


def test_interfaces_are_found_by_address():
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("203.0.113.9") == ""
    if any(name == "lo" for _, name in socket.if_nameindex()) and socket.has_ipv6:
        assert interface_of("::1") in ("lo", "")


def test_the_limit_of_open_files_is_raised_to_what_is_allowed():
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, most), most))
        told = raise_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
        assert told == most or most == resource.RLIM_INFINITY
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))


def test_ports_are_all_different():
    assert len(set(free_ports(8))) == 8


def test_a_place_tells_the_cores_that_ray_gave(monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "4,5")
    soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    place = look(3, 1, 0, "127.0.0.1")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
    assert (place.rank, place.node, place.local_rank, place.cores, place.interface) == (3, 1, 0, "4,5", "lo")
