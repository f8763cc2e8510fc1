"""Prints the scalars and texts of an event directory as TensorBoard reads them: one `tag step value` per line."""
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
tags = events.Tags()
for tag in sorted(tags["scalars"]):
    for point in events.Scalars(tag):
        print(tag, point.step, point.value)
for tag in sorted(tags["tensors"]):
    for point in events.Tensors(tag):
        print(tag, point.step, point.tensor_proto.string_val[0].decode())
