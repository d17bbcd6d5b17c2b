"""The sizes of our presets, as the scripts beside this file measure them in PyTorch (src/engine/model/models.cpp)."""
VOCAB = 10000
PRESETS = {  # width, ffn, layers, heads
    "small": (768, 3072, 12, 12), "medium": (1024, 4096, 24, 16), "large": (1280, 5120, 36, 20),
    "xl": (1600, 6400, 48, 25), "2.7B": (2560, 10240, 32, 32)}
