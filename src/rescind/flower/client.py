"""What a ClientApp calls: our helper trains a head exactly as the server says, and tells what it executed."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import ArrayLike, NDArray

from rescind.core.arrays import Tensor, take_half
from rescind.core.sums import flatten, head_names
from rescind.engines.complaints import Complaint
from rescind.engines.heads import LEAST_ROWS, sum_head, sum_ridge, train_head_on
from rescind.engines.rows import commit_rows, find_left_out, to_numpy
from rescind.engines.seeds import choose_batches
from rescind.flower.limits import Limits, admit
from rescind.flower.wire import (
    DISTANCE,
    EXECUTED,
    KEEP_RECEIPT,
    KEYED,
    LEAVE,
    LOSS,
    OWN,
    OWN_MODEL,
    PASSWORD,
    RECEIPT,
    REFUSED,
    SUMS,
    WITNESSED,
    Instructions,
    has_password,
    tell_password,
)
from rescind.ledger.commitments import LOGGED
from rescind.texts import shorten

# Flower shows what this logger says, and keeps it.
_LOG = logging.getLogger("flwr")


def train_head(
    msg: Message,
    context: Context,
    features: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    targets: ArrayLike | None = None,
    body: str = "",
    removed: ArrayLike | None = None,
    request: int = 0,
    receipts: str | os.PathLike[str] | None = None,
    limits: Limits | None = None,
    counts: str | os.PathLike[str] | None = None,
) -> Message:
    """Train a linear head on a client's data, or answer a solver's question, and return the reply for the server.

    The head is the model's two trained tensors: the one that ends in ``weight``, (c, f), and the one that ends in
    ``bias``, (c,); c is 1 for logistic regression. Everything else comes back as it came. How to train is what the
    server says, within limits that are the client's own.

    >>> @app.train()                                                                   # doctest: +SKIP
    ... def train(msg, context):
    ...     return rescind.flower.train_head(msg, context, *load(context.node_config["hospital"]))

    Args:
        msg: the server's message.
        context: the ClientApp's context.
        features: the client's examples, (n, f), floating point; a numpy array, or a torch tensor on any device.
        labels: their n classes, integers.
        targets: what a ridge head should say of them in place of classes, (n, outputs). Longer ones are scaled down
            to the loss's ``target_norm``, and the log says how many.
        body: the SHA-256 of the body that made the features, from ``digest_body``, where the server names one.
        removed: the examples that were to be forgotten, as indices or as a mask; they are left out. Give an empty
            list once they are deleted.
        request: the number of the last request whose examples are among ``removed``, or deleted. Where the server
            serves a later one nothing is answered: a list from before it does not have its examples.
        receipts: a file in which to keep what shows later that an example was among them, one for each client and
            federation; the server gets a salted commitment to them.
        limits: what the client does for its coordinator, at most; ``Limits()`` if nothing is said.
        counts: a file in which to count what was told over all runs, one for each client and federation; without it
            every run is counted by itself.

    Returns:
        the reply.

    Raises:
        ValueError: the features, labels, targets or ``removed`` do not fit, ``removed`` is missing or from before the
            last request, the features come from another body than the server names, the server's message does not
            describe a head, or is not the server's (a ClientApp has to have ``identify`` in ``@app.query()``), or it
            asks for more than the limits allow, which the log says, too.
    """
    _check_sender(msg, context)
    arrays, told = _receive(msg)
    if told.removal and (removed is None or request < told.removal):
        raise Complaint.ROWS_NOT_NAMED.error(told.removal, told.removal)
    weight, bias = head_names(told.trained)
    head = {"weight": arrays[weight].numpy(), "bias": arrays[bias].numpy()}
    if told.body and body != told.body:
        raise Complaint.BODY.error(told.body, shorten(body, 100) or "none")
    features = to_numpy(features, "features")
    expected = _check(head, features, labels, targets, told)
    executed = ConfigRecord({"digest": told.digest()})
    if removed is not None:
        left_out = find_left_out(removed, len(expected))
        if told.removal and receipts is not None:
            # Of targets nothing is committed to: what is shown later is that an example's features were among them.
            classes = expected if targets is None else np.zeros(len(expected), np.int64)
            executed["removed"] = commit_rows(receipts, told.removal, features, classes, left_out)
        if told.only_rows:
            return _reply(msg, executed, SUMS, ArrayRecord(), {})
        features, expected = features[~left_out], expected[~left_out]
        if not len(expected):
            raise Complaint.NOTHING_LEFT.error()
    if any(str(tensor.dtype) != told.training.precision for tensor in head.values()):
        raise Complaint.PRECISION.error(told.training.precision)
    norm = float(np.linalg.norm(flatten(head)))
    admit(limits or Limits(), told, context, head["weight"].shape, norm, len(expected), counts)
    if told.is_question:
        _witness(context, told, "answered")
    if told.ridge is not None:
        if len(expected) > told.ridge.most_rows:
            raise Complaint.MANY_ROWS.error(len(expected), told.ridge.most_rows)
        wanted = np.eye(len(head["bias"]))[expected] if targets is None else expected
        if targets is None:
            _tell_few(expected, context)
        _tell_clipped(wanted, told.ridge.target_norm, context)
        ridge = sum_ridge(features, wanted, told.ridge)
        answer = {"features": Array(ridge.features), "targets": Array(ridge.targets)}
        return _reply(msg, executed, SUMS, ArrayRecord(answer), {"num-examples": ridge.rows})
    if told.wanted is not None:
        sums = sum_head(head, features, expected, told.training.loss, told.wanted)
        answer = {"gradient": Array(sums.gradient)}
        if sums.curvature is not None:
            answer["curvature"] = Array(take_half(sums.curvature))
        return _reply(msg, executed, SUMS, ArrayRecord(answer), {"num-examples": sums.rows, LOSS: sums.loss})
    size = min(told.batch or len(expected), len(expected))
    chosen = choose_batches(told.seed, len(expected), size, told.training.steps) if told.batch else None
    trained = train_head_on(head, features, expected, told.training, chosen)
    own = {weight: Array(trained["weight"]), bias: Array(trained["bias"])}
    result = ArrayRecord({name: own.get(name, array) for name, array in arrays.items()})
    _witness(context, told, "trained")
    if told.masked:
        keep_own(msg, context, result)
    return _reply(msg, executed, next(iter(msg.content.array_records)), result, {"num-examples": len(expected)})


def is_question(msg: Message) -> bool:
    """Return whether the server solves a head and asks for sums over this client's rows: ``train_head`` answers that.

    For a network in two stages: what is no question is to be trained by your own code.

    Args:
        msg: the server's message.

    Returns:
        True if nothing is to be trained.

    Raises:
        ValueError: the server's message does not hold one record of arrays and one of settings.
    """
    return _receive(msg)[1].is_question


def identify(msg: Message, context: Context) -> Message:
    """Tell the server who this client is, and whether it asks to be forgotten, in ``@app.query()``.

    Who it is: the ``client-id`` of its node-config, or the ``client-name`` that FLARE gives a site. Where keys are
    registered they tell that, else it is this client's word. A SuperNode asks to be forgotten by the file that
    ``rescind leave`` made with its key: ``rescind-leave`` in its node-config names it. The receipt is written into
    the file that ``rescind-receipt`` names. The answer also has a password, without which this client obeys nothing
    in this run.

    Args:
        msg: the server's message.
        context: the ClientApp's context.

    Returns:
        the reply.

    Raises:
        ValueError: no keys are registered, and the node-config has no name; or it asks to be forgotten by something
            else than a signed request.
    """
    return _identify(msg, context, _find_name(context))


def identify_partition(msg: Message, context: Context) -> Message:
    """Tell the same as ``identify``; without a name in the node-config, the client is called by its partition.

    For an app whose client i has part i of the data, always and however many there are, as in a simulation. Where
    partitions are given out anew when somebody joins or leaves, as FLARE does, one client would be taken for another.

    Args:
        msg: the server's message.
        context: the ClientApp's context.

    Returns:
        the reply.

    Raises:
        ValueError: no keys are registered, and the node-config has neither a name nor a partition; or it asks to be
            forgotten by something else than a signed request.
    """
    partition = context.node_config.get("partition-id")
    return _identify(msg, context, _find_name(context) or ("" if partition is None else f"client-{partition}"))


def _find_name(context: Context) -> str:
    """Return what a node-config calls its client; empty if it does not."""
    config = context.node_config
    return str(config.get("client-id", config.get("client-name", "")))


def _identify(msg: Message, context: Context, name: str) -> Message:
    config, told = context.node_config, ConfigRecord()
    asked = next(iter(msg.content.config_records.values()), ConfigRecord())
    if name:
        told["client-id"] = name
    elif KEYED not in asked:
        raise Complaint.NO_NAME.error()
    if (wish := _read_wish(config)) is not None:
        told[LEAVE] = wish
    if has_password(msg, context):
        if REFUSED in asked:
            # Whoever reads this node's log asked, or has to know.
            _LOG.warning("rescind: this client is not forgotten: %s", shorten(str(asked[REFUSED]), 2000))
        # Nothing is written for a client that asks for nothing, whatever the server sends.
        if RECEIPT in asked and wish is not None:
            _keep_receipt(str(asked[RECEIPT]), config.get(KEEP_RECEIPT))
    told[PASSWORD] = tell_password(context)
    return Message(RecordDict({EXECUTED: told}), reply_to=msg)


def keep_own(msg: Message, context: Context, arrays: ArrayRecord) -> None:
    """Keep what this client trained, before it is masked, so that ``report_distance`` can tell how far it is.

    Args:
        msg: the server's message.
        context: the ClientApp's context, whose state keeps it.
        arrays: the model after local training.

    Raises:
        ValueError: the message does not hold one record of arrays and one of settings, or is not the server's.
    """
    _check_sender(msg, context)
    told = _receive(msg)[1]
    context.state[OWN] = ArrayRecord({name: arrays[name] for name in told.trained})
    context.state[OWN_MODEL] = ConfigRecord({DISTANCE: str(told.model_id)})


def report_distance(msg: Message, context: Context) -> Message | None:
    """Tell the server how far this client's own result is from the new model.

    For updates that the server cannot see: call it at the beginning of ``@app.evaluate()``.

    Args:
        msg: the server's message.
        context: the ClientApp's context, with what ``keep_own`` kept.

    Returns:
        the reply; None if the distance is not what the server asks for.

    Raises:
        ValueError: this client kept nothing of this round's training, or the message is not the server's.
    """
    (config,) = msg.content.config_records.values()
    if DISTANCE not in config:
        return None
    _check_sender(msg, context)
    (arrays,) = msg.content.array_records.values()
    own, model_id = context.state.array_records.get(OWN), context.state.config_records.get(OWN_MODEL)
    if own is None or model_id is None or model_id[DISTANCE] != config[DISTANCE]:
        raise Complaint.NOTHING_KEPT.error()
    squares = (
        float(np.square(np.subtract(arrays[name].numpy(), array.numpy(), dtype=np.float64)).sum())
        for name, array in own.items()
    )
    metrics = MetricRecord({DISTANCE: math.sqrt(math.fsum(squares)), "num-examples": 1})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


def _check_sender(msg: Message, context: Context) -> None:
    if not has_password(msg, context):
        raise Complaint.NOT_THE_SERVER.error()


def _read_wish(config: Mapping[str, Any]) -> str | None:
    """Return the signed request that a node-config names, if it names one."""
    named = {key: value for key, value in config.items() if key.startswith(LEAVE) and value is not False}
    if not named:
        return None
    # Needed once in a client's life: Flower starts a process for every message.
    from rescind.certificates.envelope import read_content
    from rescind.certificates.errors import CertificateError
    from rescind.certificates.leaving import open_request

    # The longest first, such as rescind-leave-rows: nobody would know that it was passed over.
    key = max(named)
    reason: object = "not a file"
    try:
        if key == LEAVE and isinstance(named[key], str) and named[key]:
            content = read_content(Path(named[key]))
            open_request(content)
            return content.decode()
    except (OSError, ValueError, CertificateError) as unfit:
        reason = unfit
    raise Complaint.WISH.error(*(shorten(str(gap), 200) for gap in (key, named[key], reason)))


def _receive(msg: Message) -> tuple[ArrayRecord, Instructions]:
    content = msg.content
    if len(content.array_records) != 1 or len(content.config_records) != 1:
        raise Complaint.RECORDS.error()
    (arrays,) = content.array_records.values()
    (config,) = content.config_records.values()
    return arrays, Instructions.of(config)


def _check(
    head: Mapping[str, Tensor],
    features: Tensor,
    labels: ArrayLike | None,
    targets: ArrayLike | None,
    told: Instructions,
) -> NDArray[Any]:
    """Return labels or targets; refuse data that do not fit, in words for whoever writes the ClientApp."""
    classes, width = head["weight"].shape
    if head["bias"].shape != (classes,):
        raise Complaint.BIAS.error(head["bias"].shape, head["weight"].shape)
    if features.ndim != 2 or features.shape[1] != width or not np.issubdtype(features.dtype, np.floating):
        raise Complaint.FEATURES.error(features.shape, features.dtype, width)
    if not np.isfinite(features).all():
        raise Complaint.NOT_FINITE.error()
    if (labels is None) is (targets is None):
        raise Complaint.LABELS_OR_TARGETS.error()
    if targets is not None:
        return _check_targets(to_numpy(targets, "targets"), (len(features), classes), told)
    if told.ridge is not None and classes == 1:
        raise Complaint.ONE_OUTPUT.error()
    labels = to_numpy(labels, "labels")
    if labels.shape != (len(features),) or not len(labels) or not np.issubdtype(labels.dtype, np.integer):
        raise Complaint.LABELS.error(labels.shape, labels.dtype, len(features))
    most = max(classes, 2)
    if labels.min() < 0 or labels.max() >= most:
        raise Complaint.CLASSES.error(labels.min(), labels.max(), most - 1)
    return labels


def _check_targets(targets: NDArray[Any], shape: tuple[int, int], told: Instructions) -> NDArray[np.float64]:
    if told.ridge is None:
        raise Complaint.NO_TARGETS.error(type(told.training.loss).__name__)
    number = np.issubdtype(targets.dtype, np.number) and not np.iscomplexobj(targets)
    if targets.shape != shape or not len(targets) or not number or not np.isfinite(targets).all():
        raise Complaint.TARGETS.error(targets.shape, targets.dtype, *shape)
    return targets.astype(np.float64)


def _tell_clipped(targets: NDArray[Any], most: float, context: Context) -> None:
    """Say in the log how many targets are scaled down; in a simulation nobody reads it."""
    longer = int((np.linalg.norm(targets, axis=1) > most).sum())
    if longer and "partition-id" not in context.node_config:
        _LOG.warning(
            "rescind: %d of %d targets are longer than the server's target_norm, %g, and are scaled down to it",
            *(longer, len(targets), most),
        )


def _tell_few(labels: NDArray[Any], context: Context) -> None:
    """Say in the log how many classes have so few rows that sums show these; in a simulation nobody reads it."""
    few = int((np.unique(labels, return_counts=True)[1] < LEAST_ROWS).sum())
    if few and "partition-id" not in context.node_config:
        _LOG.warning(
            "rescind: %d classes have fewer than %d rows here: the sums that the server gets show these rows' "
            "features, of a single row outright. Leave such rows out if that is too much",
            *(few, LEAST_ROWS),
        )


def _reply(
    msg: Message, executed: ConfigRecord, name: str, arrays: ArrayRecord, metrics: Mapping[str, int | float]
) -> Message:
    content = RecordDict({name: arrays, "metrics": MetricRecord(dict(metrics)), EXECUTED: executed})
    return Message(content, reply_to=msg)


def _keep_receipt(content: str, file: object) -> None:
    """Write this client's receipt into the file that its node-config names, unless it is there already."""
    if not file:
        _LOG.warning("rescind: a receipt came, and the node-config has no %s=FILE to keep it in", KEEP_RECEIPT)
        return
    # Needed once in a client's life: Flower starts a process for every message.
    from rescind.certificates.leaving import parse_receipt, read_receipt, write_receipt

    path = Path(str(file))
    try:
        receipt = parse_receipt(content.encode())
        if path.is_file() and read_receipt(path) == receipt:
            return
        write_receipt(path, receipt)
    except (OSError, ValueError) as unfit:
        # What the server sent may be in the error.
        _LOG.warning("rescind: a receipt could not be written into %s: %s", file, shorten(str(unfit), 500))
        return
    _LOG.info("rescind: the request to be forgotten is recorded; its receipt is in %s", file)


def _witness(context: Context, told: Instructions, done: str) -> None:
    """Remember where the chain of the server's history stood; who knows that can tell if it is rewritten later."""
    context.state[WITNESSED] = ConfigRecord({f"{told.model_id}": told.head.hex()})
    # In a simulation nobody keeps the log, and there are hundreds of clients.
    level = logging.DEBUG if "partition-id" in context.node_config else logging.INFO
    _LOG.log(level, "rescind: %s for %s; %s%s", done, told.model_id, LOGGED, told.head.hex())
