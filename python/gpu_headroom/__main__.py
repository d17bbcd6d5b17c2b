"""The command gpu-headroom: the program inside this wheel. `python -m gpu_headroom` is the same."""

import os
import sys


def main():
    """Become the program; its arguments are this process's."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "headroom")
    if not os.path.exists(program):
        sys.exit(f"gpu-headroom: {program} is missing: this package was not installed from a wheel (make wheel builds one)")
    os.execv(program, ["gpu-headroom", *sys.argv[1:]])


if __name__ == "__main__":
    main()
