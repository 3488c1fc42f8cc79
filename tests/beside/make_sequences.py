#!/usr/bin/env python3
"""Records sequences that PyTorch has padded and packed, for tests/beside/sequences.c.

usage: make_sequences.py COUNT SEED FILE
Needs torch. Each record is six lines of numbers: the lengths; the elements of all sequences; the offsets and the largest
length of a jagged nested tensor; the result of pad_sequence; the mask, which is pad_sequence of ones."""
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import torch
from torch.nn.utils.rnn import pad_sequence

PAD = -5


def numbers(tensor):
    values = tensor.flatten().tolist()
    return " ".join(str(int(v)) for v in [len(values), *values])


def main():
    count, seed, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.manual_seed(seed)
    with open(path, "w") as file:
        file.write(f"# torch {torch.__version__}, seed {seed}\n")
        for _ in range(count):
            lengths = torch.randint(1, 12, (int(torch.randint(1, 7, ())),))
            sequences = [torch.randint(-(2**40), 2**40, (int(n),)) for n in lengths]
            jagged = torch.nested.nested_tensor(sequences, layout=torch.jagged)
            lines = [lengths, jagged.values(), jagged.offsets(), jagged.offsets().diff().max().reshape(1),
                     pad_sequence(sequences, batch_first=True, padding_value=PAD),
                     pad_sequence([torch.ones_like(s) for s in sequences], batch_first=True)]
            file.writelines(numbers(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
