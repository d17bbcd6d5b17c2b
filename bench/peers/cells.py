"""What a peer takes beside ours, as `headroom bench` reads it: a line for each cell and peer, written as soon as it is measured."""
import csv


class Cells:
    def __init__(self, file):  # None: nothing is written
        self.file = open(file, "w", newline="") if file else None
        if self.file:
            self.writer = csv.writer(self.file)
            self.writer.writerow(["cell", "peer", "ours_ms", "peer_ms", "why"])

    def add(self, cell, peer, ours_ms, peer_ms, why=""):  # without a time: why there is none
        if not self.file:
            return
        words = ["" if ms is None else f"{ms:.6g}" for ms in (ours_ms, peer_ms)]
        self.writer.writerow([cell, peer, *words, why])
        self.file.flush()
