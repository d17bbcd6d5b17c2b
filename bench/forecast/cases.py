"""Files of cases: a program of programs/ and its options on each line; lines that begin with # are comments."""


def cases_of(path):
    with open(path) as f:
        return [line.strip() for line in f if line.strip() and not line.startswith("#")]
