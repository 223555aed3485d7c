"""What a recorded federation can say beyond the usual."""

from __future__ import annotations

from dataclasses import dataclass

from rescind.certificates.approvals import Approvers
from rescind.core.facts import PublicHead
from rescind.history.run import Goal
from rescind.ledger.records import ErasureLevel
from rescind.serving import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What few federations need to say: how clients train, what is kept, and how requests are served.

    Args:
        batch: how many examples a local step uses; None means all of the client's.
        equal_weights: every participant weighs the same, whatever number of examples it tells: for clients whose
            number of examples is private.
        declared: clients train by code of their own, and that they do what ``training`` says is your word. Otherwise
            they use ``train_head``, and what does not come from there is rejected.
        heuristic: record a strategy that the theorem does not cover; then only ``exact`` forgetting is certified.
        masked: the server sees masked updates, and clients tell their distances with ``report_distance``.
        accuracy: the name of the metric that clients report in evaluation, for stop rules and scores.
        most_examples: no client can have more; whoever says so is rejected.
        capacity: see ``History.recording``.
        goal: see ``History.recording``.
        public_schedule: see ``Facts``.
        public: see ``Facts``.
        seed: makes all randomness reproducible, the noise too, for tests; then nothing is certified.
        write_behind: see ``Revocable``.
        level: how much of a forgotten client is erased.
        approval: whether somebody has to agree to every plan before it is carried out (``rescind approve``), or the
            public keys of those who may: then only what one of them has signed counts. Where nobody has yet, the run
            ends with an error that says so; with ``serve`` it waits.
        serve: when requests are served by a run that does not end: ``at_once``, ``nightly`` or a rule of your own.
            Once the training has come to its end, it waits for requests until somebody stops it (``flwr stop``).
    """

    batch: int | None = None
    equal_weights: bool = False
    declared: bool = False
    heuristic: bool = False
    masked: bool = False
    accuracy: str = "accuracy"
    most_examples: int = 10**7
    capacity: int = 32
    goal: Goal | None = None
    public_schedule: bool = False
    public: PublicHead | None = None
    seed: bytes | None = None
    write_behind: bool = True
    level: ErasureLevel = ErasureLevel.PURGE
    approval: Approvers = False
    serve: Rule | None = None
