#!/usr/bin/env python3
"""Time of one training step by class of op and by kernel, from ncu's CSV of two steps.

    ncu --metrics gpu__time_duration.sum --csv ... megatron pretrain_gpt ... --train-iters 2 | kernel_table.py

A step is what lies between the two kernels that make the clip factor: the optimizer of the first step and all else of the
second.
"""
import collections
import csv
import re
import sys

CLASSES = [
    ("attention", r"attention|grad_q_kernel|grad_kv_kernel|fmha|flash|cudnn"),
    ("matrix products", r"nvjet|cublas|gemm|splitK"),
    ("optimizer and norm", r"Step>|Step,|pieces_kernel|finish_|clip_factor|Adam"),
    ("loss", r"statistics_kernel|\bbackward_kernel|masked_sum"),
    ("norm layers", r"norm_|WeightGradient|BiasGradient"),
    ("activations, biases, residuals", r"packs_kernel<.*(Forward|Backward|Linear)|column_sums"),
    ("copies and fills", r"MoveUnits"),
]


def shortened(name):
    name = re.sub(r"\(.*", "", name.replace("<unnamed>::", "").replace("megatron::", "").replace("kernels::", ""))
    return re.sub(r"^void ", "", name)[:70]


def table(rows):
    times, counts = collections.Counter(), collections.Counter()
    for name, nanoseconds in rows:
        times[name] += nanoseconds
        counts[name] += 1
    total = sum(times.values())
    for name, time in times.most_common():
        print(f"{time / 1e6:10.3f} ms {100 * time / total:5.1f} % {counts[name]:6d}  {name}")
    print(f"{total / 1e6:10.3f} ms 100.0 % {sum(counts.values()):6d}  all")


def main():
    kernels = []
    for line in sys.stdin:
        if "gpu__time_duration" in line:
            row = next(csv.reader([line]))
            kernels.append((row[4].replace("(anonymous namespace)", "<unnamed>"), float(row[-1].replace(",", ""))))
    ends = [i for i, (name, _) in enumerate(kernels) if "clip_factor" in name]
    if len(ends) != 2:
        sys.exit(f"kernel_table: {len(ends)} steps instead of 2 among {len(kernels)} kernels")
    step = kernels[ends[0] + 1 : ends[1] + 1]
    table([(next((c for c, pattern in CLASSES if re.search(pattern, n)), "other"), t) for n, t in step])
    print()
    table([(shortened(n), t) for n, t in step])


if __name__ == "__main__":
    main()
