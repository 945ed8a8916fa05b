"""Fingerprints of encoded data, which show whether all processes, and a resumed training, have read the same data."""

import hashlib
from collections.abc import Mapping, Sequence

from glassgate.tasks.data.batches import Encoded
from glassgate.tasks.data.corpus import Corpus
from glassgate.tasks.errors import UserError
from glassgate.tasks.training.processes.group import Group


def fingerprints(encoded: Mapping[str, Sequence[Encoded]], processes: Group) -> dict[str, str]:
    """Return the fingerprint of each split of the data, by name.

    Raises:
        UserError: the processes have read different data
    """
    own = {name: _fingerprint(split) for name, split in encoded.items()}
    with processes.shared_errors():
        for name, fingerprint in processes.broadcast(own).items():
            if own[name] != fingerprint:
                raise UserError(f"the {name} data is not what process 0 has read; give all machines the same files")
    return own


def _fingerprint(encoded: Sequence[Encoded]) -> str:
    if isinstance(encoded, Corpus) and encoded.digest:
        return encoded.digest
    digest = hashlib.blake2b(digest_size=16)
    for fields in encoded:
        for name in sorted(fields):
            digest.update(f"{name}{fields[name].shape}".encode())
            digest.update(fields[name].tobytes())
    return digest.hexdigest()
