"""What the makers of operations share: the pool, texts of trees, and the cases that are not done."""

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

POOL = 4
TEXTS = (NonTensorData, NonTensorStack)
LEAVES = (torch.Tensor, *TEXTS)
KEYS = ["a", "b", "n", "m", "c.d"]


def column(shape, first):
    """Texts of the numbers from `first` on, as a stack of the given shape."""
    if not shape:
        return NonTensorData(f"t{first}")
    step = 1
    for size in shape[1:]:
        step *= size
    return NonTensorStack(*(column(shape[1:], first + i * step) for i in range(shape[0])))


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def texts_of(td, value):
    """The text of each element; a text that all elements have is written once, as TensorDict often repeats it."""
    texts = [value.data] * td.numel() if isinstance(value, NonTensorData) else flat(value.tolist())
    return texts[:1] if len(set(texts)) == 1 else texts


def dump(td):
    parts = []
    for key, value in td.items():
        if isinstance(value, TEXTS):
            parts.append(f'{key}:"{",".join(texts_of(td, value))}"')
        elif isinstance(value, torch.Tensor):
            shape = ",".join(map(str, value.shape))
            parts.append(f"{key}:({shape}){','.join(map(str, value.reshape(-1).tolist()))}")
        else:
            parts.append(f"{key}:{dump(value)}")
    return "{[" + ",".join(map(str, td.batch_size)) + "]" + ";".join(parts) + "}"


def escape(key):
    return key.replace("\\", "\\\\").replace(".", "\\.")


def own_nodes(td):
    """TensorDict's results share nested dictionaries, or are the very tree; tdict's have nodes of their own."""
    def nodes(td):
        made = TensorDict({}, td.batch_size)
        for key, value in td.items():
            if isinstance(value, TEXTS):
                value = value.clone()  # a text is locked with its tree
            made._tensordict[key] = value if isinstance(value, LEAVES) else nodes(value)
        return made

    return nodes(td).lock_() if td.is_locked else nodes(td)


def in_order_of(td, like):
    """The keys in the order of another tree that has the same."""
    made = TensorDict({}, td.batch_size)
    for key in like.keys():
        value = td.get(key)
        made._tensordict[key] = value if isinstance(value, LEAVES) else in_order_of(value, like.get(key))
    return made


def consolidated_order(td):
    """The order of a consolidated file: texts for whole trees, tensors, then columns and trees."""
    made = TensorDict({}, td.batch_size)
    for kind in (NonTensorData, torch.Tensor, (NonTensorStack, TensorDict)):
        for key, value in td.items():
            if isinstance(value, kind):
                made._tensordict[key] = value if isinstance(value, LEAVES) else consolidated_order(value)
    return made


def ids_of(td):
    """The identities of a tree and of all trees below it."""
    return {id(td)}.union(*(ids_of(v) for v in td.values() if not isinstance(v, LEAVES)))


def some_locked(td):
    return td.is_locked or any(some_locked(v) for v in td.values() if not isinstance(v, LEAVES))


USES_BATCH = {"index", "setindex", "view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "permute",
              "transpose", "split", "chunk", "every", "unbind", "join", "pad", "flatten_keys", "flatten_keys_"}

# Texts of TensorDict's errors for trees with texts that tdict accepts.
REFUSED_BY_TENSORDICT = {"All tensordicts must be non-tensors": "texts of a tree without elements",
                         "cat lazy stacked tds must have same stack dim": "cat of columns that were stacked along other dimensions",
                         "existing batch_size": "another batch size where TensorDict repeats a text",
                         "zip() argument 2 is shorter": "texts of a tree without elements",
                         "items cannot be empty": "texts of a tree without elements",
                         "Cannot call `view` on a lazy": "view of texts",
                         "tuple index out of range": "chunks of texts that TensorDict cannot make",
                         "the NonTensorData": "another batch size where TensorDict repeats a text"}


class Wanted(Exception):
    """tdict differs here by intention."""
