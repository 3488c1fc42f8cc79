"""Code shared by the scripts that record operations: conversions of trees to strings, copies of trees, and the
exception for operations that are not recorded."""

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

POOL = 4
TEXTS = (NonTensorData, NonTensorStack)
LEAVES = (torch.Tensor, *TEXTS)
KEYS = ["a", "b", "n", "m", "c.d"]


def column(shape, first):
    """Returns the texts "t<first>", "t<first + 1>" and so on, in a stack of the given shape."""
    if not shape:
        return NonTensorData(f"t{first}")
    step = 1
    for size in shape[1:]:
        step *= size
    return NonTensorStack(*(column(shape[1:], first + i * step) for i in range(shape[0])))


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, list) else [value]


def texts_of(td, value):
    """Returns the text of each element, or only one text if all are equal, because TensorDict often repeats a text."""
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
    """Returns a copy whose nodes are not shared, like tdict's results. TensorDict's results can share nodes."""
    def nodes(td):
        made = TensorDict({}, td.batch_size)
        for key, value in td.items():
            if isinstance(value, TEXTS):
                value = value.clone()  # locking a tree also locks its texts
            made._tensordict[key] = value if isinstance(value, LEAVES) else nodes(value)
        return made

    return nodes(td).lock_() if td.is_locked else nodes(td)


def in_order_of(td, like):
    """Returns a copy of `td` with its keys in the order of `like`, which has the same keys."""
    made = TensorDict({}, td.batch_size)
    for key in like.keys():
        value = td.get(key)
        made._tensordict[key] = value if isinstance(value, LEAVES) else in_order_of(value, like.get(key))
    return made


def consolidated_order(td):
    """Returns a copy of `td` with its keys in the order of a consolidated file: texts for whole trees, then tensors,
    then columns and child trees."""
    made = TensorDict({}, td.batch_size)
    for kind in (NonTensorData, torch.Tensor, (NonTensorStack, TensorDict)):
        for key, value in td.items():
            if isinstance(value, kind):
                made._tensordict[key] = value if isinstance(value, LEAVES) else consolidated_order(value)
    return made


def ids_of(td):
    """Returns the ids of a tree and of all trees below it."""
    return {id(td)}.union(*(ids_of(v) for v in td.values() if not isinstance(v, LEAVES)))


def some_locked(td):
    return td.is_locked or any(some_locked(v) for v in td.values() if not isinstance(v, LEAVES))


USES_BATCH = {"index", "setindex", "view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "permute",
              "transpose", "split", "chunk", "every", "unbind", "join", "pad", "flatten_keys", "flatten_keys_"}

# Errors that TensorDict raises for operations that tdict supports, with the names under which they are counted.
REFUSED_BY_TENSORDICT = {"All tensordicts must be non-tensors": "texts of a tree without elements",
                         "cat lazy stacked tds must have same stack dim": "cat of columns that were stacked along other dimensions",
                         "existing batch_size": "a new batch size of a text that TensorDict repeats",
                         "zip() argument 2 is shorter": "texts of a tree without elements",
                         "items cannot be empty": "texts of a tree without elements",
                         "Cannot call `view` on a lazy": "view of texts",
                         "tuple index out of range": "chunks of texts",
                         "the NonTensorData": "a new batch size of a text that TensorDict repeats"}


class Wanted(Exception):
    """Raised for an operation that is not recorded, for example because tdict intentionally differs."""
