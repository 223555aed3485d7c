"""What the golden certificates say: fixed names, fixed times, fixed facts."""

from __future__ import annotations

from dataclasses import replace

from rescind.certificates.issue import build_guarantee, describe_facts, describe_noised_rounds, describe_training
from rescind.certificates.predicate import (
    STATEMENT_TYPE,
    VERSION,
    Erasure,
    Evidence,
    Names,
    Noise,
    Sha256,
    Solving,
    Statement,
    Subject,
    name_type,
)
from rescind.certificates.wording import NOISE_SOURCE, write_predicate
from rescind.core.calibration import Budget
from rescind.core.facts import Facts, Mode, Sampling
from rescind.core.noise import GRID
from rescind.core.regularity import SoftmaxL2
from rescind.core.summary import Request
from rescind.core.training import LocalTraining

MODES = list(Mode)
TRAINING = LocalTraining(5, 0.5, SoftmaxL2(0.01, 1.0))
FACTS = Facts(TRAINING, Sampling.POISSON, True, False, True, sample=0.3, frozen="e" * 64, solved=True)


def golden(mode: Mode, version: int = VERSION) -> Statement:
    # The strict one is of DP-FedAvg, which is never solved, so that every part is in one of the files.
    facts = describe_facts(replace(FACTS, solved=mode is not Mode.STRICT), 7850, version)
    training = describe_training(TRAINING)
    noised = mode in (Mode.INSTANCE, Mode.HEURISTIC)
    noise = Noise(sigma=0.125, grid=GRID, source=NOISE_SOURCE, earlier=1) if noised else None
    rounds = describe_noised_rounds(0.5, 0.5, 10.0, 40, 36) if mode is Mode.STRICT else None
    request = Request(frozenset({1}), Budget(5.0, 1e-5))
    proven = mode in (Mode.STRICT, Mode.INSTANCE)
    solving = (
        Solving(tolerance=1e-5, most_bytes=16_000_000, most_rounds=100, solved=True) if mode is Mode.EXACT else None
    )
    predicate = write_predicate(
        version=version,
        run="0123456789abcdef",
        model="1.5",
        names=Names(operator="City Hospitals", federation="heart", model=None),
        request=23,
        asked="2026-11-01T12:00:00+00:00",
        asked_by="the operator",
        signed_request=None,
        first_deadline="2026-12-01T12:00:00+00:00",
        approved=None,
        deadline="2026-12-01T12:00:00+00:00",
        forgotten=("c" * 64, "d" * 64),
        rows=(),
        mode=mode.value,
        scope="group",
        facts=facts,
        guarantee=build_guarantee(request, facts.parameters, noise, rounds) if proven else None,
        noise=noise,
        rounds=rounds,
        trained=("head.bias", "head.weight"),
        frozen=FACTS.frozen,
        training=training,
        solving=solving,
        erasure=Erasure(
            level="purge",
            completed="2026-11-02T12:00:00+00:00",
            log="f" * 64,
            stays=("a digest",),
            unreachable=(),
        ),
        body=None,
        reasons=("the rounds were drawn again",) if mode is Mode.HEURISTIC else (),
        evidence=()
        if mode is Mode.EXACT
        else (Evidence(what="an attack", found="epsilon at least 0.1, with 95 %", bound="epsilon 5"),),
    )
    return Statement(
        type_=STATEMENT_TYPE,
        subject=(
            Subject(name="model", digest=Sha256(sha256="a" * 64)),
            Subject(name="head of the history", digest=Sha256(sha256="b" * 64)),
        ),
        predicate_type=name_type(predicate),
        predicate=predicate,
    )
