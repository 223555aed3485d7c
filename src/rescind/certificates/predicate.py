"""What a certificate says: its own part of an in-toto Statement, as frozen models that refuse anything else."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from rescind.ledger.commitments import canonical

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
# The wording of what is issued; what was issued in version 1 stays in it.
VERSION: Final = 2

MOST_EVIDENCE = 32

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
# What is shown on a terminal is one line of it: no control characters, and none that turn the direction of writing.
_SHOWN = r"^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+$"
Words = Annotated[str, Field(min_length=1, max_length=2000, pattern=_SHOWN)]
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=_SHOWN)]
# As ``Ledger.identifier`` makes it.
Run = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
# The numbers of a model's branch and round.
ModelName = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})$")]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
Word = Literal[
    "checked by the server",
    "executed by our helper",
    "reported by the client",
    "reported by the participant",
    "declared by the operator",
]


class Part(BaseModel):
    """A part of a certificate: of the stated types exactly, nothing missing, nothing added."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class EpsilonAt(Part):
    """The epsilon that the guarantee has at another delta."""

    delta: Positive
    epsilon: Annotated[float, Field(ge=0)]


class PowerAt(Part):
    """The most that any attack on the released model can reach."""

    false_positive_rate: Share
    true_positive_rate: Share


class Guarantee(Part):
    """How well the released model hides whether the clients ever took part.

    ``mu`` is the largest shift, in units of the noise, that the noise was calibrated to: what (epsilon, delta)
    allows, less a thousandth of both for what floating point does to it. ``releases`` is the number of released
    models that the guarantee covers together. ``epsilons`` are at those other deltas for which one is proven of the
    noise as it is really drawn; ``powers`` hold for that noise too.
    """

    epsilon: Positive
    delta: Positive
    mu: Positive
    releases: Count
    epsilons: tuple[EpsilonAt, ...]
    powers: tuple[PowerAt, ...]


class Noise(Part):
    """What was added to every parameter; ``sigma`` is a member of the public list, ``grid`` its rounding.

    ``earlier`` counts the noises that lay on the line of training before: a bound may rest on a public norm of each.
    """

    sigma: Positive
    grid: Positive
    source: Words
    earlier: Number


class NoisedRounds(Part):
    """DP-FedAvg, whose rounds are noised and hide by themselves: what the clients' mu is made of.

    ``noise_multiplier`` is z, which follows from ``sigma``, the noise on the mean, ``clip`` (C) and ``denominator``.
    There were ``rounds`` before the restart; ``participations`` is the sum over them of the squared number of those
    who are hidden together and took part, the largest if several groups count. In rounds that were erased before, all
    of them count who may have taken part. ``mu`` is its root over z.
    """

    noise_multiplier: Positive
    sigma: Positive
    clip: Positive
    denominator: Positive
    rounds: Number
    participations: Number
    mu: Annotated[float, Field(ge=0)]


class Sources(Part):
    """On whose word the facts are known."""

    training: Word
    identity: Word
    distances: Word
    reachable: Word
    server: Word


class Grown(Part):
    """A part with fields that older certificates do not have; where one is None it is spelt as theirs."""

    _LATER: ClassVar[tuple[str, ...]]

    @model_serializer(mode="wrap")
    def _spell(self, spell: SerializerFunctionWrapHandler) -> dict[str, Any]:
        told: dict[str, Any] = spell(self)
        return {name: value for name, value in told.items() if name not in self._LATER or value is not None}


class RidgeLimits(Grown):
    """What decides a ridge head beside its L2 term and row norm: the target norm, and the most rows and clients.

    ``l2_choices`` are the L2 terms of which each solve chose one; None if it is the stated one.
    """

    _LATER: ClassVar[tuple[str, ...]] = ("l2_choices",)

    target_norm: Positive
    most_rows: Count
    most_clients: Count
    l2_choices: tuple[Positive, ...] | None = None


class Stages(Grown):
    """A network in two stages: for how many rounds anchors trained its body, and for what loss its head is solved."""

    _LATER: ClassVar[tuple[str, ...]] = ("ridge",)

    body_rounds: Count
    head: tuple[Words, Words]
    loss: Literal["SoftmaxL2", "LogisticL2", "SquaredL2"]
    l2: Positive
    row_norm: Positive
    ridge: RidgeLimits | None = None


class Body(Part):
    """The body of the model: ``model`` is the first one that has it, ``anchors`` how many clients trained it."""

    model: ModelName
    anchors: Count


class PublishedBody(Part):
    """The published network that makes the features of a head, by name and the SHA-256 of its weights."""

    name: Name
    digest: Digest


class RecordedFacts(Grown):
    """The facts from which, with mode, scope and training, every text follows.

    ``sample`` is the rate, size or share that ``sampling`` draws, ``batch`` the examples of a local step, None where
    all are used; ``solved`` says that somewhere the head was solved, ``parameters`` is d, ``stages`` is None where
    the whole model is trained alike. ``body`` is what the features of a head come from, if that is stated;
    ``keeps_sums`` says that the server keeps each client's sums, None that it does not.
    """

    _LATER: ClassVar[tuple[str, ...]] = ("body", "keeps_sums")

    sampling: Literal["everybody", "poisson", "fixed_size", "fraction"]
    sample: Positive | None
    batch: Count | None
    equal_weights: bool
    solved: bool
    parameters: Count
    stages: Stages | None
    sources: Sources
    body: PublishedBody | None = None
    keeps_sums: Literal[True] | None = None


class Training(Grown):
    """What every client executed in a round, and the factors that follow from it.

    ``curvature`` bounds the eigenvalues of the loss's Hessian, ``gradient_bound`` is L, both None where nothing is
    known; ``expansion`` is B, ``factor`` rho = B^K. Of code of the clients' own nothing is stated, and a ridge head
    is not trained: then ``learning_rate`` and ``steps`` are None.
    """

    _LATER: ClassVar[tuple[str, ...]] = ("ridge",)

    loss: Words
    l2: Annotated[float, Field(ge=0)] | None
    row_norm: Positive | None
    curvature: tuple[float, float] | None
    gradient_bound: Positive | None
    learning_rate: Positive | None
    steps: Annotated[int, Field(ge=1, lt=2**31)] | None
    proximal: Annotated[float, Field(ge=0)]
    server_learning_rate: Positive
    precision: Words
    expansion: Positive | None
    factor: Positive | None
    ridge: RidgeLimits | None = None


class Solving(Part):
    """How the head was solved: to which norm of the gradient, and within which limits.

    ``solved`` is False where the limit of rounds came first: then no norm of the gradient is known.
    """

    tolerance: Positive
    most_bytes: Count
    most_rounds: Count
    solved: bool


class Assumption(Part):
    """Something that the claim rests on, and on what basis."""

    what: Words
    basis: Literal["proven", "assumed", Word]


class Erasure(Part):
    """What was erased, and when; ``log`` is the salted digest of the list, which the operator keeps."""

    level: Literal["output", "purge"]
    completed: Words
    log: Digest
    stays: tuple[Words, ...]
    unreachable: tuple[Words, ...]


class Evidence(Part):
    """An attempt to falsify the claim: what was tried, what it found and how sure that is, and the claim's own bound.

    That it failed proves nothing; it is the signers' word.
    """

    what: Words
    found: Words
    bound: Words


Measured = Annotated[tuple[Evidence, ...], Field(max_length=MOST_EVIDENCE)]


class NamedRows(Part):
    """What shows later which rows a client named: ``root`` commits to them, ``client`` is one of the forgotten."""

    client: Digest
    root: Digest


class Approval(Grown):
    """When somebody agreed to the plan, and the fingerprint of the key it was signed with, None without one.

    ``login`` says that the operator's desk knew who agreed by a login, None that nothing did.
    """

    _LATER: ClassVar[tuple[str, ...]] = ("login",)

    time: Words
    key: Digest | None
    login: Literal[True] | None = None


class Names(Grown):
    """What people call the operator, the federation, its model and the protocol by which its cohort was approved.

    None where nothing was said.
    """

    _LATER: ClassVar[tuple[str, ...]] = ("protocol",)

    operator: Name | None
    federation: Name | None
    model: Name | None
    protocol: Name | None = None


class Predicate(Part):
    """The claim about one request.

    ``version`` is that of the statement's type: version 1 says client for participant, and some sentences otherwise.
    ``forgotten`` are salted digests of the clients' names: whoever has its receipt finds itself. Where single records
    went, ``rows`` are the clients' commitments to them, as far as they made any. ``run`` names the history, whose
    head is a subject of the statement, and ``model`` the model in it; ``names`` are the operator's words for people.
    ``trained`` names the tensors that the model's digest is about, ``frozen`` is the digest of all others, if there
    are any. ``constants`` are what the claim takes as given although data may have decided it, ``public`` what it
    does not hide. ``noise`` or ``rounds`` is what hides. ``solving`` says how the head was solved after the restart,
    None if it was trained. ``evidence`` was measured, and no claim rests on it. ``body`` is what of a network in two
    stages nobody but its anchors has trained. ``asked_by`` says who handed the request in; if the client signed it
    itself, ``signed_request`` is the SHA-256 of what it signed. ``first_deadline`` is the one
    before any extension, ``approved`` is None where nobody had to agree.
    """

    title: Words
    version: Literal[1, 2]
    run: Run
    model: ModelName
    names: Names
    request: Count
    asked: Words
    asked_by: Literal[
        "the operator",
        "the client's own node",
        "the client's own key",
        "the participant's own node",
        "the participant's own key",
    ]
    signed_request: Digest | None
    deadline: Words
    first_deadline: Words
    approved: Approval | None
    forgotten: tuple[Digest, ...]
    rows: tuple[NamedRows, ...]
    mode: Literal["exact", "strict", "instance", "heuristic"]
    claim: Words
    scope: Literal["individual", "group", "sequence", "records"]
    counterfactual: Words
    sampling: Words
    constants: tuple[Words, ...]
    public: tuple[Words, ...]
    facts: RecordedFacts
    guarantee: Guarantee | None
    noise: Noise | None
    rounds: NoisedRounds | None
    trained: tuple[Words, ...]
    frozen: Digest | None
    training: Training
    solving: Solving | None
    assumptions: tuple[Assumption, ...]
    erasure: Erasure
    not_claimed: tuple[Words, ...]
    reasons: tuple[Words, ...]
    evidence: Measured
    body: Body | None


class Sha256(Part):
    """A digest, as in-toto wants it."""

    sha256: Digest


class Subject(Part):
    """What the statement is about, by its SHA-256."""

    name: Literal["model", "head of the history"]
    digest: Sha256


class InToto(Part):
    """An in-toto Statement, version 1: what is signed. ``called`` says what it is, in messages."""

    model_config = ConfigDict(populate_by_name=True)

    called: ClassVar[str]

    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")

    def payload(self) -> bytes:
        """Return the bytes that are signed: JSON with sorted keys and without spaces."""
        return canonical(self.model_dump(mode="json", by_alias=True))


class Statement(InToto):
    """An in-toto Statement, version 1, about a released model and the history behind it."""

    called = "a certificate"

    subject: tuple[Subject, Subject]
    predicate_type: Literal[
        "urn:rescind:certificate-of-forgetting:1",
        "urn:rescind:report-that-is-no-certificate:1",
        "urn:rescind:certificate-of-forgetting:2",
        "urn:rescind:report-that-is-no-certificate:2",
    ] = Field(alias="predicateType")
    predicate: Predicate


def name_type(predicate: Predicate) -> Any:
    """Return the type of a statement with this predicate: certificate or report, and its version."""
    kind = "report-that-is-no-certificate" if predicate.mode == "heuristic" else "certificate-of-forgetting"
    return f"urn:rescind:{kind}:{predicate.version}"
