"""Builds the catalogue's data files from recorded facts: `python -m raytrain_eks.catalog.build FACTS_FOLDER`.

Reads `ec2_allocatable.csv` and `accelerated_instances.csv` of that folder, and this folder's `supplement.csv` (types
that Karpenter's table lacks) and `neuron.csv` (NeuronCores and logical cores by chip). Writes `instances.csv`, one row
per type, and `sources.csv`. Two records of the same fact that differ end the build.
"""

import csv
import re
import sys
from decimal import Decimal
from pathlib import Path

from raytrain_eks.catalog import allocatable

HERE = Path(__file__).parent
COLUMNS = [
    "type",
    "arch",
    "vcpu",
    "memory_mib",
    "vendor",
    "accelerator",
    "accelerators",
    "accelerator_memory_mib",
    "neuron_cores_per_device",
    "lnc_default",
    "lnc_allowed",
    "bf16_tflops",
    "fp8_tflops",
    "hbm_tb_per_s",
    "link",
    "link_gb_per_s",
    "network_mbps",
    "efa",
    "efa_mbps",
    "efa_generation",
    "ebs_mbps",
    "nvme_gb",
    "allocatable_cpu",
    "allocatable_memory_mib",
    "allocatable_pods",
    "source",
    "peak_source",
    "notes",
]
KARPENTER = "karpenter-provider-aws@1d92708 website/content/en/preview/reference/instance-types.md"
DATE = "2026-08"
"""The date that the tables carry; a row whose source names none has this one."""
PEAKS = "vendor's dense peaks, memory bandwidth and links, as recorded in accelerated_instances.csv"
VENDORS = {"gaudi-hl-205": "habana", "qualcomm-ai100": "qualcomm", "inferentia": "aws", "inferentia2": "aws"}
NAMES = {"inferentia": "Inferentia", "qualcomm-ai100": "Qualcomm AI100", "radeon-pro-v520": "Radeon Pro V520"}
NAMES |= {"gaudi-hl-205": "Gaudi HL-205", "t4g": "T4G", "l4": "L4"}
Row = dict[str, str]


class Sources:
    """Numbers for source texts, in the order of their first use."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], str] = {}

    def key(self, text: str, date: str) -> str:
        return self.rows.setdefault((text, date), f"s{len(self.rows) + 1}")


def build(facts: Path) -> tuple[list[Row], list[Row]]:
    """Rows of `instances.csv`, sorted by type, and of `sources.csv`. Raises ValueError for facts that disagree."""
    general = _read(facts / "ec2_allocatable.csv", "instance_type")
    accelerated = _read(facts / "accelerated_instances.csv", "instance_type")
    detailed = {name: row for name, row in accelerated.items() if re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", name)}
    neuron = _read(HERE / "neuron.csv", "accelerator")
    supplement = _read(HERE / "supplement.csv", "instance_type")
    sources = Sources()
    rows = []
    for name in sorted(general.keys() | detailed.keys()):
        row = _general(general[name], sources) if name in general else dict.fromkeys(COLUMNS, "") | {"type": name}
        if name in detailed:
            _add_details(row, detailed[name], sources)
        if name in supplement:
            _derive(row, supplement[name], sources)
        if row["accelerator"] in neuron and row["accelerators"] != "0":
            _add_cores(row, neuron[row["accelerator"]], sources)
        _check(row, general.get(name, {}))
        rows.append(row)
    return rows, [{"key": key, "date": date, "text": text} for (text, date), key in sources.rows.items()]


def _read(path: Path, key: str) -> dict[str, Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def _general(fact: Row, sources: Sources) -> Row:
    """A row of the general table, which is Karpenter's."""
    row = dict.fromkeys(COLUMNS, "") | {
        "type": fact["instance_type"],
        "arch": fact["arch"],
        "vcpu": fact["vcpu"],
        "memory_mib": fact["memory_mib"],
        "network_mbps": fact["network_mbps"],
        "ebs_mbps": fact["ebs_mbps"],
        "nvme_gb": fact["local_nvme_gb"] or "0",
        "efa": fact["vpc.amazonaws.com/efa"] or "0",
        "allocatable_cpu": fact["allocatable_cpu"],
        "allocatable_memory_mib": fact["allocatable_memory"].removesuffix("Mi"),
        "allocatable_pods": fact["allocatable_pods"],
        "accelerators": fact["gpu_count"] or fact["accelerator_count"] or "0",
        "accelerator_memory_mib": fact["gpu_memory_mib"],
        "source": sources.key(KARPENTER, DATE),
    }
    name = fact["gpu_name"] or fact["accelerator_name"]
    row["accelerator"] = NAMES.get(name, name)
    row["vendor"] = fact["gpu_manufacturer"] or VENDORS.get(name, "")
    if row["accelerators"] == "0" and name:
        row["notes"] = "a fraction of one GPU: no whole device, so no extended resource"
    return row


def _mib(gib: str) -> str:
    return str(int(Decimal(gib) * 1024))


def _mbps(gbps: str) -> str:
    return f"{(Decimal(gbps) * 1000).normalize():f}" if gbps else ""


def _add_details(row: Row, fact: Row, sources: Sources) -> None:
    """What the table of accelerated types adds: peaks and links always, the rest where the general table is silent."""
    text, date = fact["source"], re.search(r"\b(20\d\d-\d\d)\b", fact["source"])
    row |= {
        "accelerator": fact["accelerator"].split(" (")[0],
        "vendor": fact["accel_vendor"],
        "bf16_tflops": fact["bf16_dense_tflops_each"],
        "fp8_tflops": fact["fp8_dense_tflops_each"],
        "hbm_tb_per_s": fact["hbm_tb_per_s_each"],
        "link": fact["intra_node_link"],
        "link_gb_per_s": fact["intra_link_gb_per_s_each_bidir"],
        "efa_mbps": _mbps(fact["efa_gbps_total"]),
        "efa_generation": fact["efa_gen"] if fact["efa_interfaces"] not in ("", "0") else "",
        "peak_source": sources.key(PEAKS, DATE),
        "notes": "; ".join(part for part in fact["notes"].split("; ") if "seed text" not in part.lower()),
    }
    recorded = {
        "arch": fact["arch"],
        "vcpu": fact["vcpu"],
        "memory_mib": _mib(fact["ram_gib"]),
        "accelerators": fact["accel_count"],
        "accelerator_memory_mib": fact["accel_mem_reported_mib"] or _mib(fact["accel_mem_gib_each"]),
        "network_mbps": _mbps(fact["network_gbps"]),
        "ebs_mbps": _mbps(fact["ebs_gbps"]),
        "nvme_gb": fact["local_nvme_gb"],
        "efa": fact["efa_interfaces"],
        "allocatable_cpu": fact["alloc_cpu_m"] and fact["alloc_cpu_m"] + "m",
        "allocatable_memory_mib": fact["alloc_mem_mib"],
        "allocatable_pods": fact["alloc_pods"],
    }
    if not row["source"]:
        row["source"] = sources.key(text.split(" (EC2")[0] if date else text, date.group(1) if date else DATE)
    for column, value in recorded.items():
        row[column] = row[column] or value
        if value and column in ("vcpu", "memory_mib", "accelerators", "efa", "allocatable_cpu", "allocatable_pods"):
            _agree(row, column, value)


def _derive(row: Row, fact: Row, sources: Sources) -> None:
    row["allocatable_pods"] = fact["allocatable_pods"]
    row["allocatable_cpu"] = f"{int(allocatable.cpu(int(row['vcpu'])) * 1000)}m"
    given = allocatable.memory(Decimal(row["memory_mib"]) * 2**20, int(row["allocatable_pods"]), row["arch"])
    row["allocatable_memory_mib"] = str(given // 2**20)
    row["source"] += " " + sources.key(fact["source"], fact["date"])
    row["notes"] = "; ".join(part for part in (row["notes"], fact["note"]) if part)


def _add_cores(row: Row, fact: Row, sources: Sources) -> None:
    row["neuron_cores_per_device"] = fact["cores_per_device"]
    row["lnc_default"], row["lnc_allowed"] = fact["lnc_default"], fact["lnc_allowed"]
    row["peak_source"] = " ".join([*row["peak_source"].split(), sources.key(fact["source"], fact["date"])])


def _agree(row: Row, column: str, value: str) -> None:
    if row[column] != value:
        raise ValueError(f"{row['type']}: {column} is {row[column]} in one table and {value} in the other")


def _check(row: Row, general: Row) -> None:
    """Recorded against derived: allocatable by Karpenter's formulas, NeuronCores by chip."""
    if row["allocatable_cpu"]:
        pods, total = int(row["allocatable_pods"]), Decimal(row["memory_mib"]) * 2**20
        _agree(row, "allocatable_cpu", f"{int(allocatable.cpu(int(row['vcpu'])) * 1000)}m")
        _agree(row, "allocatable_memory_mib", str(allocatable.memory(total, pods, row["arch"]) // 2**20))
    if cores := general.get("aws.amazon.com/neuroncore"):
        per_device = int(cores) // int(row["accelerators"])
        if row["accelerator"] in ("Inferentia", "Inferentia2", "Trainium1", "Trainium2"):
            _agree(row, "neuron_cores_per_device", str(per_device))


def _write(path: Path, columns: list[str], rows: list[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: list[str]) -> int:
    """Write both files beside this module."""
    if len(arguments) != 1:
        print("usage: python -m raytrain_eks.catalog.build FACTS_FOLDER", file=sys.stderr)
        return 2
    rows, sources = build(Path(arguments[0]))
    _write(HERE / "instances.csv", list(COLUMNS), rows)
    _write(HERE / "sources.csv", ["key", "date", "text"], sources)
    print(f"{len(rows)} types, {len(sources)} sources", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
