"""What the makers of operations share: the pool, texts of trees, and the cases that are not done."""

import torch
from tensordict import TensorDict

POOL = 4
KEYS = ["a", "b", "n", "m", "c.d"]


def dump(td):
    parts = []
    for key, value in td.items():
        if isinstance(value, torch.Tensor):
            shape = ",".join(map(str, value.shape))
            parts.append(f"{key}:({shape}){','.join(map(str, value.reshape(-1).tolist()))}")
        else:
            parts.append(f"{key}:{dump(value)}")
    return "{[" + ",".join(map(str, td.batch_size)) + "]" + ";".join(parts) + "}"


def escape(key):
    return key.replace("\\", "\\\\").replace(".", "\\.")


def own_nodes(td):
    """TensorDict's results share nested dictionaries, or are the very tree; tdict's have nodes of their own."""
    locked = td.is_locked
    td = td.clone(recurse=False)
    return td.lock_() if locked else td


def in_order_of(td, like):
    """The keys in the order of another tree that has the same."""
    made = TensorDict({}, td.batch_size)
    for key in like.keys():
        value = td.get(key)
        made._tensordict[key] = value if isinstance(value, torch.Tensor) else in_order_of(value, like.get(key))
    return made


def tensors_first(td):
    """The order of a consolidated file: the tensors of a tree, then its trees."""
    made = TensorDict({}, td.batch_size)
    for is_tensor in (True, False):
        for key, value in td.items():
            if isinstance(value, torch.Tensor) == is_tensor:
                made._tensordict[key] = value if is_tensor else tensors_first(value)
    return made


def ids_of(td):
    """The identities of a tree and of all trees below it."""
    return {id(td)}.union(*(ids_of(v) for v in td.values() if not isinstance(v, torch.Tensor)))


def some_locked(td):
    return td.is_locked or any(some_locked(v) for v in td.values() if not isinstance(v, torch.Tensor))


USES_BATCH = {"index", "setindex", "view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "expand", "permute",
              "transpose", "split", "chunk", "every", "unbind", "join", "pad", "flatten_keys", "flatten_keys_"}


class Wanted(Exception):
    """tdict differs here by intention."""
