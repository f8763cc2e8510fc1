"""PyTorch's TCPStore, on either side of ours. Prints what torch_store_test.cpp expects.

serve LIBUV: a server that says its port, then waits for what our client writes.
ask PORT: a client of our server.
"""
import datetime
import sys

from torch.distributed import DistStoreError, TCPStore

LONG = datetime.timedelta(seconds=20)
PREFIX = "megatron/run/0/"


def serve(libuv):
    store = TCPStore("127.0.0.1", 0, None, True, timeout=LONG, use_libuv=libuv, wait_for_workers=False)
    store.set(PREFIX + "theirs", b"a\0b")
    print(store.port, flush=True)
    store.wait([PREFIX + "done"])
    print(store.get(PREFIX + "ours"), store.add(PREFIX + "count", 0), store.check([PREFIX + "never"]))


def ask(port):
    store = TCPStore("127.0.0.1", port, None, False, timeout=LONG, wait_for_workers=False)
    store.set(PREFIX + "theirs", b"a\0b")
    print(store.get(PREFIX + "ours"), store.add(PREFIX + "count", 2), store.check([PREFIX + "never"]))
    try:
        store.wait([PREFIX + "never"], datetime.timedelta(milliseconds=200))
    except DistStoreError:
        print("waited in vain", store.get(PREFIX + "ours"))


if sys.argv[1] == "serve":
    serve(sys.argv[2] == "libuv")
else:
    ask(int(sys.argv[2]))
