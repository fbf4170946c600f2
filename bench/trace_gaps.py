"""How busy the GPU was during a trace, and where it waited for the host.

    python3 bench/trace_gaps.py trace.json

Counts the time in which no kernel or copy ran on any stream, between the first and the last of the trace.
"""

import collections
import json
import sys


def main():
    events = json.load(open(sys.argv[1]))["traceEvents"]
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and e.get("dur", 0) > 0]
    work.sort(key=lambda e: e["ts"])
    begin, end = work[0]["ts"], max(e["ts"] + e["dur"] for e in work)
    busy_until, idle, gaps = begin, 0.0, []
    for event in work:
        gap = event["ts"] - busy_until
        if gap > 0:
            idle += gap
            gaps.append((gap, event["name"]))
        busy_until = max(busy_until, event["ts"] + event["dur"])
    print(f"{len(work)} kernels and copies in {(end - begin) / 1e3:.1f} ms; idle {idle / 1e3:.2f} ms, "
          f"{100 * idle / (end - begin):.2f} %; gaps above 20 us: {sum(g > 20 for g, _ in gaps)}")
    for gap, name in sorted(gaps, reverse=True)[:5]:
        print(f"  {gap:8.1f} us before {name[:90]}")
    by_stream, by_name = collections.Counter(), collections.Counter()
    for event in work:
        by_stream[event["args"].get("stream")] += event["dur"]
        by_name[event["name"].split("(")[0][:80]] += event["dur"]
    print("streams: " + ", ".join(f"{stream}: {time / 1e3:.1f} ms" for stream, time in by_stream.most_common()))
    for name, time in by_name.most_common(14):
        print(f"  {time / 1e3:8.1f} ms  {name}")


if __name__ == "__main__":
    main()
