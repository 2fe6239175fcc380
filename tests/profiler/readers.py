#!/usr/bin/env python3
"""Reads what `vedette export` wrote with the tools it is for, or by the rules of its format; prints facts as JSON.

    readers.py memory-viz FILE MEMORY_VIZ_PY     torch/cuda/_memory_viz.py, loaded by itself
    readers.py pt-snap FILE                      pt-snap-cli's package: its replay of the memory viewer's file
    readers.py damo FILE                         damo's package: writes records of its own classes there, and reads them
    readers.py oracle-general FILE CAPACITY...   libCacheSim's package: LRU and Belady, by capacity in bytes
    readers.py perfetto FILE
    readers.py trace-processor FILE              Perfetto's own, if it is on the PATH
    readers.py hta FILE
    readers.py minimalloc FILE
    readers.py csv FILE

Exits with 77 where a tool is missing, and says which.
"""
import csv
import importlib.util
import json
import os
import pickle
import pickletools
import shutil
import subprocess
import sys
import tempfile

# What the viewer's own unpickler knows (torch/utils/viz/MemoryViz.js).
VIEWER_OPCODES = {"APPENDS", "BINGET", "BININT", "BININT1", "BININT2", "EMPTY_DICT", "EMPTY_LIST", "FRAME", "LONG1", "LONG_BINGET", "MARK",
                  "MEMOIZE", "PROTO", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE2", "APPEND", "NEWFALSE", "BINPUT", "BINUNICODE",
                  "EMPTY_TUPLE", "NEWTRUE", "NONE", "BINFLOAT", "LONG_BINPUT", "SETITEM", "TUPLE", "TUPLE1", "TUPLE3"}


def missing(what):
    print(what)
    sys.exit(77)


def read_memory_viz(path, module_path):
    spec = importlib.util.spec_from_file_location("memory_viz", module_path)
    viz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viz)
    with open(path, "rb") as file:
        data = file.read()
    foreign = {op.name for op, _, _ in pickletools.genops(data)} - VIEWER_OPCODES
    assert not foreign, foreign
    snapshot = pickle.loads(data)
    facts = {"segments": len(snapshot["segments"]), "devices": [s["device"] for s in snapshot["segments"]],
             "active": [s["active_size"] for s in snapshot["segments"]], "traces": [len(t) for t in snapshot["device_traces"]]}
    viz.segsum(snapshot)
    viz.trace(snapshot)
    page = viz.trace_plot(snapshot)
    assert "MemoryViz" in page
    facts["memory"] = viz.memory(snapshot, format_flamegraph=lambda lines: lines).splitlines()
    facts["segments_lines"] = len(viz.segments(snapshot, format_flamegraph=lambda lines: lines).splitlines())
    viz.compare(snapshot["segments"], snapshot["segments"], format_flamegraph=lambda lines: lines)
    # By device: live bytes after each event, which never take back what was not given.
    facts["peak"], facts["end"], facts["actions"] = [], [], []
    for trace in snapshot["device_traces"]:
        held, now, peak, last = {}, 0, 0, 0
        for event in trace:
            assert event["time_us"] >= last
            last = event["time_us"]
            if event["action"] == "alloc":
                assert event["addr"] not in held
                held[event["addr"]] = event["size"]
                now += event["size"]
            elif event["action"] == "free_completed":
                assert held.pop(event["addr"]) == event["size"]
                now -= event["size"]
            peak = max(peak, now)
        facts["peak"].append(peak)
        facts["end"].append(now)
        facts["actions"].append([e["action"] + " " + e["frames"][0]["name"] for e in trace])
    facts["replayed"] = replay_backwards(snapshot)
    facts["frames"] = snapshot["device_traces"][0][0]["frames"] if snapshot["device_traces"][0] else []
    return facts


def read_pt_snap(path):
    if importlib.util.find_spec("pt_snap_cli") is None:
        missing("pt-snap-cli (PyPI) is missing (scripts/setup.sh --tests installs it)")
    with tempfile.TemporaryDirectory() as place:
        def pt_snap(*words):  # its settings go into the home folder
            done = subprocess.run([sys.executable, "-c", "from pt_snap_cli.cli import app; app()", *words, "--json"], text=True,
                                  capture_output=True, env={**os.environ, "HOME": place})
            assert done.returncode == 0, done.stdout + done.stderr
            return json.loads(done.stdout)

        snapshot = shutil.copy(path, os.path.join(place, "snapshot.pickle"))  # it wants a name that ends so
        database = pt_snap("import", snapshot, "--output-dir", place, "--no-focus")["db_path"]
        devices = [each["device_id"] for each in pt_snap("overview", database)["devices"]]
        reports = [pt_snap("report", "peak-memory", database, "--device", str(device)) for device in devices]
    return {"devices": devices, "peak": [each["peak"]["peak_allocated"] for each in reports]}


def read_damo(path):
    """What damo's own classes say of records that they wrote: accesses in samples, and the pages with any, by snapshot."""
    spec = importlib.util.find_spec("damo")
    if spec is None:
        missing("damo (PyPI) is missing (scripts/setup.sh --tests installs it)")
    sys.path.insert(0, spec.submodule_search_locations[0])
    import _damo_records as records
    import _damon as damon
    record = records.DamonRecord(0, 0, damon.DamonIntervals(), 0, 7, [])
    for turn in range(3):
        regions = [damon.DamonRegion(4096 * begin, 4096 * end, (begin + turn) % 4, damon.unit_samples, 1, damon.unit_aggr_intervals)
                   for begin, end in ((1, 5), (5, 6), (100 + turn, 130))]
        record.snapshots.append(records.DamonSnapshot(10**8 * turn, 10**8 * (turn + 1), regions, None))
    assert records.write_damon_records([record], path, records.file_type_json_compressed) is None
    (again,) = records.parse_compressed_json(path)
    used = [[r for r in snapshot.regions if r.nr_accesses.samples] for snapshot in again.snapshots]
    return {"samples": sum(r.nr_accesses.samples for regions in used for r in regions),
            "pages": [sum((r.end - r.start) // 4096 for r in regions) for regions in used]}


def read_trace_processor(path):
    shell = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if shell is None:
        missing("Perfetto's trace_processor_shell is missing (the package perfetto of PyPI has none, and would download it)")
    queries = {"memory": "select max(value) from counter join counter_track on counter.track_id = counter_track.id where name like '%memory%'",
               "slices": "select count(*) from slice", "errors": "select coalesce(sum(value), 0) from stats where severity = 'error'"}
    facts = {}
    for name, query in queries.items():
        done = subprocess.run([shell, "-Q", query, path], capture_output=True, text=True, check=True)
        value = done.stdout.strip().splitlines()[-1].strip('"')
        facts[name] = float(value) if value != "[NULL]" else None
    return facts


def replay_backwards(snapshot):
    """As strict readers do (pt-snap-cli): from the blocks at the end back, each in a gap of a segment. Its peak, by device."""
    peaks = []
    for device, trace in enumerate(snapshot["device_traces"]):
        segments = [s for s in snapshot["segments"] if s["device"] == device]
        ranges = sorted((s["address"], s["address"] + s["total_size"]) for s in segments)
        assert all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:])), "segments overlap"
        held = {}
        for segment in segments:
            at = segment["address"]
            for block in segment["blocks"]:
                assert block["address"] == at, "blocks are not side by side"
                at += block["size"]
                if block["state"] == "active_allocated":
                    held[block["address"]] = block["size"]
            assert at == segment["address"] + segment["total_size"], "blocks do not fill their segment"
        now = peak = sum(held.values())
        for event in reversed(trace):
            begin, end = event["addr"], event["addr"] + event["size"]
            if event["action"] == "alloc":
                assert held.pop(begin, None) == event["size"], "what is born is not there later"
                now -= event["size"]
            elif event["action"] == "free_completed":
                assert any(a <= begin and end <= b for a, b in ranges), "cannot find gap for block: no segment"
                near = [(a, a + size) for a, size in held.items() if a < end and begin < a + size]
                assert not near, f"cannot find gap for block: {near}"
                held[begin] = event["size"]
                now += event["size"]
            peak = max(peak, now)
        assert not held, "something was never born"
        peaks.append(peak)
    return peaks


def read_oracle_general(path, *capacities):
    try:
        import libcachesim as lcs
    except ImportError as error:
        missing(f"libcachesim (PyPI) is missing or incomplete: {error}")
    import struct
    with open(path, "rb") as file:
        data = file.read()
    rows = list(struct.iter_unpack("<IQIq", data))
    sizes = {obj: size for _, obj, size, _ in rows}
    assert all(sizes[obj] == size for _, obj, size, _ in rows)
    for at, (_, obj, _, following) in enumerate(rows):  # by the format's own definition
        later = next((i for i in range(at + 1, len(rows)) if rows[i][1] == obj), -1) if len(rows) < 5000 else following
        assert following == later, (at, following, later)
    misses = {}
    for capacity in map(int, capacities):
        misses[capacity] = []
        for algorithm in (lcs.LRU, lcs.Belady):
            reader = lcs.TraceReader(path, lcs.TraceType.ORACLE_GENERAL_TRACE)
            cache = algorithm(cache_size=capacity)
            missed = 0
            for request in reader:
                missed += not cache.get(request)
            misses[capacity].append(missed)
    return {"requests": len(rows), "objects": len(sizes), "bytes": sum(sizes.values()), "misses": misses}


def read_hta(path):
    """What HTA finds (hta/common/trace_parser.py, hta/analyzers/breakdown_analysis.py): GPU work has a stream and a launch of its number."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    assert trace["distributedInfo"]["rank"] == 0
    events = [e for e in trace["traceEvents"] if "dur" in e and "cat" in e]
    assert any(e["name"].startswith("ProfilerStep#") for e in events)
    launches = {e["args"]["correlation"]: e for e in events if e["cat"] == "cuda_runtime"}
    work = [e for e in events if e["args"].get("stream", -1) >= 0]
    assert min(launches) >= 1 << 30, "row numbers go into a column of their type"
    assert len(launches) == len(work) == len({e["args"]["correlation"] for e in work})
    busy = {"compute": 0, "memory": 0}
    copied = {}
    for e in work:
        launch = launches[e["args"]["correlation"]]
        assert launch["ts"] <= e["ts"], (launch, e)
        assert (e["cat"] == "gpu_memcpy") == e["name"].startswith("Memcpy ") == (launch["name"] == "cudaMemcpyAsync")
        busy["memory" if e["cat"] == "gpu_memcpy" else "compute"] += round(e["dur"] * 1000)
        if e["cat"] == "gpu_memcpy":
            copied[e["name"][:11]] = copied.get(e["name"][:11], 0) + e["args"]["bytes"]
            assert abs(e["args"]["memory bandwidth (GB/s)"] - e["args"]["bytes"] / max(1, round(e["dur"] * 1000))) < 1e-2
    return {"busy": busy, "copied": copied}


def read_perfetto(path):
    with open(path, encoding="utf-8") as file:
        trace = json.load(file)
    assert trace["schemaVersion"] == 1 and trace["displayTimeUnit"] == "ms" and isinstance(trace["baseTimeNanoseconds"], int)
    by_track, counts, flows = {}, {}, {}
    for event in trace["traceEvents"]:
        phase = event["ph"]
        counts[phase] = counts.get(phase, 0) + 1
        assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int) and event["ts"] >= 0, event
        if phase == "X":
            assert event["dur"] >= 0 and isinstance(event["args"], dict) and event["cat"]
            # whole nanoseconds: floating point must not break what nests
            begin = round(event["ts"] * 1000)
            by_track.setdefault((event["pid"], event["tid"]), []).append((begin, begin + round(event["dur"] * 1000), event["cat"], event["name"]))
        elif phase == "i":
            assert event["s"] == "t"
        elif phase == "C":
            assert event["args"] and all(isinstance(v, (int, float)) for v in event["args"].values())
        elif phase in "sf":
            assert phase == "s" or event["bp"] == "e"
            flows.setdefault(event["id"], []).append(event)
        else:
            assert phase == "M", event
    for slices in by_track.values():
        stack = []
        for begin, end, *_ in sorted(slices, key=lambda s: (s[0], -s[1])):
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1], "slices of one track overlap without nesting"
            stack.append(end)
    for pair in flows.values():
        assert [e["ph"] for e in pair] == ["s", "f"] and pair[0]["ts"] <= pair[1]["ts"]
    return {"counts": counts, "tracks": sorted(tid for _, tid in by_track),
            "slices": {str(tid): [[b, e, c, n] for b, e, c, n in slices] for (_, tid), slices in by_track.items()},
            "flows": sorted(pair[0]["cat"] for pair in flows.values()),
            "counters": sorted({e["name"] for e in trace["traceEvents"] if e["ph"] == "C"}),
            "memory": [e["args"]["Total Allocated"] for e in trace["traceEvents"] if e["name"] == "[memory]"]}


def read_minimalloc(path):
    """The buffers, and the largest sum of sizes that live at one time: what any allocator needs at least."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert not rows or list(rows[0]) == ["id", "lower", "upper", "size"]
    buffers = [(row["id"], int(row["lower"]), int(row["upper"]), int(row["size"])) for row in rows]
    assert len({b[0] for b in buffers}) == len(buffers)
    assert all(lower < upper and size > 0 for _, lower, upper, size in buffers)
    change = {}
    for _, lower, upper, size in buffers:
        change[lower] = change.get(lower, 0) + size
        change[upper] = change.get(upper, 0) - size
    now = peak = 0
    for at in sorted(change):
        now += change[at]
        peak = max(peak, now)
    return {"buffers": buffers, "peak": peak}


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    assert all(len(row) == len(rows[0]) for row in rows)
    return {"rows": rows}


def main():
    readers = {"memory-viz": read_memory_viz, "pt-snap": read_pt_snap, "damo": read_damo, "trace-processor": read_trace_processor,
               "oracle-general": read_oracle_general, "perfetto": read_perfetto, "hta": read_hta,
               "minimalloc": read_minimalloc, "csv": read_csv}
    print(json.dumps(readers[sys.argv[1]](*sys.argv[2:])))


if __name__ == "__main__":
    main()
