import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

sys.path[:0] = ["src", "benchmarks"]
from dataclasses import replace

import files
import torch

from pta.images import batch_decoder
from pta.inference import decoding as dec
from pta.inference import encoding
from pta.inference.reading import Reading

spent = defaultdict(float)
def timed(name, f):
    def g(*a, **k):
        t = time.perf_counter()
        try: return f(*a, **k)
        finally: spent[name] += time.perf_counter() - t
    return g
dec.OnGpu.finish = timed("decode thread: finish", dec.OnGpu.finish)
batch_decoder.resize_ragged = timed("decode thread: resize_ragged", batch_decoder.resize_ragged)
batch_decoder.BatchDecoder._decoded = timed("decode thread: nvjpeg", batch_decoder.BatchDecoder._decoded)
encoding._begin = timed("main: begin", encoding._begin)
encoding._Begun.wait = timed("main: wait features", encoding._Begun.wait)
import concurrent.futures as cf

from pta.inference import feed

feed._collect = timed("main: collect", feed._collect)
feed._Work.wait = timed("main: work.wait", feed._Work.wait)
old = cf.Future.result
from pta.inference import predict

predict._predicted = timed("main: answers", predict._predicted)
from pta.inference.saved_stream import SavedStream

SavedStream.add = timed("main: add rows", SavedStream.add)
from pta.inference.row_file import RowFile

RowFile.write = timed("row thread: write", RowFile.write)
def run(model, paths, reading, count, name):
    spent.clear()
    row, speed = files.measure(model, paths, files.Way(name, reading, None), "predict", count)
    print(f"== {name}: {speed:.0f}/s cpu {row['host_cpu_share']} {row['decoded']} wall {count/speed:.2f}", flush=True)
    for k, v in sorted(spent.items()): print(f"     {k:32s} {v:.2f}", flush=True)
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as d:
        paths = files.write_pictures(Path(d) / "p", [(500, 375)] * 512)
        model = files.random_model("ViT-B/16")
        t = time.perf_counter(); print("alone", files.model_alone(model), time.perf_counter() - t, flush=True)
        gpu = Reading(256, decode="gpu", processes=True)
        run(model, paths, replace(gpu, workers=8), 30000, "warm, 8 processes")
        for w in (8, 4, 16): run(model, paths, replace(gpu, workers=w), 50000, f"gpu, {w} processes")
        run(model, paths, replace(gpu, workers=1, processes=False), 20000, "gpu, 1 thread")
        run(model, paths, Reading(256, decode="pillow", workers=16, processes=True), 20480, "16 processes")
        w = model.float(); x = torch.randint(0, 256, (256, 3, 224, 224), dtype=torch.uint8, device="cuda")
        for _ in range(3): w.encode_unchecked(x)
        torch.cuda.synchronize(); t = time.perf_counter()
        for _ in range(8): w.encode_unchecked(x)
        torch.cuda.synchronize(); print("float32 plain", 8 * 256 / (time.perf_counter() - t))
