"""Secret bytes that cannot repeat, and a certified path that no seed reaches."""

import copy
import gc
import inspect
import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import algorithms

from rescind import entropy
from rescind.core.noise import GRID
from rescind.entropy import (
    ReproducibleBytesNeverCertified,
    SecretBytes,
    reproducible_noise_never_certified,
    secret_noise,
)

# 32 secret values agree by chance with a probability far below 2^-256.
PARAMETERS = {"a": np.zeros(32)}
SIGMA = 1.0

FORK = """
import os
from rescind.entropy import SecretBytes

source = SecretBytes()
source.read(8)
if os.fork() == 0:
    try:
        source.read(8)
    except RuntimeError as error:
        os._exit(7 if "forked" in str(error) else 1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
assert len(source.read(8)) == 8
"""

RUN = """
import random
import numpy as np
from rescind.entropy import secret_noise

random.seed(0)
np.random.seed(0)
print(secret_noise({"a": np.zeros(32)}, 1.0)["a"].tobytes().hex())
"""


def test_the_stream_is_chacha20(monkeypatch):
    # RFC 8439, appendix A.1, test vectors 1 and 2: the zero key's first two blocks begin like this.
    monkeypatch.setattr(os, "urandom", bytes)
    source = SecretBytes()
    assert source.read(64).hex().startswith("76b8e0ada0f13d90405d6ae55386bd28")
    assert source.read(64).hex().startswith("9f07e7be5551387a98ba977c732d080d")


def test_streams_go_on_and_differ():
    with SecretBytes() as one, SecretBytes() as other:
        blocks = {source.read(16) for source in (one, other) for _ in range(1000)}
    assert len(blocks) == 2000


def test_the_length_of_reads_does_not_matter():
    whole, parts = (ReproducibleBytesNeverCertified(3) for _ in range(2))
    assert whole.read(1000) == b"".join(parts.read(count) for count in (1, 63, 64, 0, 872))


def test_a_fresh_key_follows_before_the_counter_can_wrap(monkeypatch):
    keys, urandom = [], os.urandom

    def recorded_key(count):
        keys.append(urandom(count))
        return keys[-1]

    monkeypatch.setattr(os, "urandom", recorded_key)
    monkeypatch.setattr(entropy, "_BYTES_PER_KEY", 256)
    source = SecretBytes()
    blocks = [source.read(64) for _ in range(40)]
    assert len(set(blocks)) == 40
    assert len(set(keys)) == len(keys) == 10
    with pytest.raises(ValueError, match="at most 256 bytes"):
        source.read(257)


def test_the_real_limit_is_below_every_counter():
    assert entropy._BYTES_PER_KEY <= 64 * 2**31


def test_a_seeds_stream_also_changes_its_key(monkeypatch):
    monkeypatch.setattr(entropy, "_BYTES_PER_KEY", 64)
    one, other = (ReproducibleBytesNeverCertified(5) for _ in range(2))
    blocks = [one.read(64) for _ in range(20)]
    assert len(set(blocks)) == 20
    assert blocks == [other.read(64) for _ in range(20)]


# Looking at every object there is touches what other packages have deprecated.
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_key_is_nowhere_in_reach(monkeypatch):
    key = os.urandom(32)
    monkeypatch.setattr(os, "urandom", lambda count: bytes(key[:count]))
    source = SecretBytes()
    source.read(8)
    ciphers = [thing for thing in gc.get_objects() if isinstance(thing, algorithms.ChaCha20)]
    assert all(bytes(cipher.key) != key for cipher in ciphers)
    for holder in (source, source._stream):
        assert all(value != key for value in vars(holder).values())
    assert repr(source) == str(source) == "SecretBytes()"


@pytest.mark.parametrize("attempt", [copy.copy, copy.deepcopy, pickle.dumps])
def test_secret_bytes_cannot_be_copied_or_stored(attempt):
    with SecretBytes() as source, pytest.raises(TypeError, match="would repeat them"):
        attempt(source)


def test_closed_bytes_are_refused():
    with SecretBytes() as source:
        source.read(8)
    assert source._stream is None
    with pytest.raises(ValueError, match="closed"):
        source.read(8)
    source.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_is_refused():
    subprocess.run([sys.executable, "-c", FORK], check=True)


def test_a_seed_decides_the_experiment_and_only_it():
    drawn = [reproducible_noise_never_certified(PARAMETERS, SIGMA, seed=seed) for seed in (0, 0, 1)]
    first, again, other = (noised["a"] for noised in drawn)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    with pytest.raises(ValueError, match="got -1"):
        ReproducibleBytesNeverCertified(-1)


def test_the_noise_of_a_seed_is_the_same_everywhere():
    noised = reproducible_noise_never_certified(PARAMETERS, SIGMA, seed=2024)["a"]
    # Computed apart from the package, from the key's SHA-256 on, with statistics.NormalDist.
    assert (noised[:4] / GRID).tolist() == [2142194, 1157815, -924914, -2736000]


@pytest.mark.parametrize(
    "name", ["seed", "source", "rng", "generator", "key", "random_state", "entropy", "nonce", "stream"]
)
def test_the_secret_path_takes_no_seed_by_name(name):
    for call in (lambda **more: secret_noise(PARAMETERS, SIGMA, GRID, **more), SecretBytes):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call(**{name: 0})


def test_the_secret_path_takes_no_seed_by_position():
    assert list(inspect.signature(secret_noise).parameters) == ["parameters", "sigma", "grid"]
    with pytest.raises(TypeError, match="positional"):
        secret_noise(PARAMETERS, SIGMA, GRID, 0)
    with pytest.raises(TypeError, match="positional"):
        SecretBytes(0)


def test_global_seeds_do_not_reach_the_secret_path():
    drawn = set()
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - the global generator is what must not matter
        drawn.add(secret_noise(PARAMETERS, SIGMA)["a"].tobytes())
    assert len(drawn) == 2


def test_the_environment_does_not_reach_the_secret_path():
    seeds = {"PYTHONHASHSEED": "0", "RESCIND_SEED": "0", "SEED": "0", "NUMPY_SEED": "0"}
    runs = [
        subprocess.run([sys.executable, "-c", RUN], env=os.environ | seeds, check=True, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    assert runs[0].stdout != runs[1].stdout
    assert len(runs[0].stdout.strip()) == 2 * 8 * 32


def test_the_certificate_path_takes_public_sigmas_only():
    with pytest.raises(ValueError, match=r"power of sqrt 2.*0\.3"):
        secret_noise({"a": np.zeros(3)}, 0.3)
    assert reproducible_noise_never_certified({"a": np.zeros(3)}, 0.3, seed=1)["a"].any()


def test_what_is_certified_is_what_was_drawn():
    noised = secret_noise({"a": np.zeros(3)}, 1.0)
    with pytest.raises(ValueError, match="read-only"):
        noised["a"][:] = 0
    with pytest.raises(TypeError):
        noised["a"] = np.zeros(3)
