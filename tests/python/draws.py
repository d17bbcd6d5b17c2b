"""Which probabilities our dropout drops, in NumPy: what src/ops/attention/dropout.h says, written a second time."""

import numpy as np

_LOW = np.uint64(0xFFFFFFFF)


def philox(key, counter):
    """Philox 4x32-10: a key of two numbers, a counter of four arrays or numbers of 32 bits."""
    k0, k1 = (np.uint64(k) for k in key)
    x = [np.asarray(c, dtype=np.uint64) for c in counter]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * x[0], np.uint64(0xCD9E8D57) * x[2]
        x = [(b >> np.uint64(32)) ^ x[1] ^ k0, b & _LOW, (a >> np.uint64(32)) ^ x[3] ^ k1, a & _LOW]
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & _LOW, (k1 + np.uint64(0xBB67AE85)) & _LOW
    return x


def philox_short(key, counter):
    """Philox 2x32-7: a key that is a number or an array, a counter of two arrays, of 32 bits each."""
    k, (x, y) = key, counter
    for _ in range(7):
        product = np.uint64(0xD256D193) * x
        x, y, k = (product >> np.uint64(32)) ^ k ^ y, product & _LOW, (k + np.uint64(0x9E3779B9)) & _LOW
    return x, y


def kept(seed, offset, dropout, batch, heads, len_q, len_k):
    """float64 [batch, heads, len_q, len_k]: 0 where dropped, else what the probability is multiplied by."""
    seed, offset = (int(n) & (1 << 64) - 1 for n in (seed, offset))
    first, of_keys, of_rows, _ = philox((seed & 0xFFFFFFFF, seed >> 32), (offset & 0xFFFFFFFF, offset >> 32, 0, 0))
    pair = np.arange(batch * heads, dtype=np.uint64).reshape(batch, heads, 1, 1)
    row, key = np.arange(len_q, dtype=np.uint64).reshape(1, 1, -1, 1), np.arange(len_k, dtype=np.uint64).reshape(1, 1, 1, -1)
    pair, row, key = np.broadcast_arrays(pair, row, key)

    def place(at):
        return at // np.uint64(16) * np.uint64(8) + at % np.uint64(8)

    words = philox_short((first + pair) & _LOW, ((place(key) + of_keys) & _LOW, (place(row) + of_rows) & _LOW))
    word = np.where(key // np.uint64(8) % np.uint64(2) == 0, *words)
    draws = (word >> (row // np.uint64(8) % np.uint64(2) * np.uint64(16))) & np.uint64(0x7FFF)
    below = min(int(np.floor(float(np.float32(dropout)) * 32768 + 0.5)), 32767)
    return np.where(draws < below, 0.0, 32768 / (32768 - below))
