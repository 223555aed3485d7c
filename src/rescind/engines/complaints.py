"""What our helpers on a client complain about, in words that the server knows again.

What a client's exception says may hold what it has of its patients, and anybody can write anything. So the server
shows none of it: if it holds one of these messages, it shows that message, without what stands in its gaps.
"""

from __future__ import annotations

from enum import StrEnum


class Complaint(StrEnum):
    """A message of ours, with gaps."""

    FEATURES = "features are {}, {}; the head takes (n, {}), floating point"
    NOT_FINITE = "features hold numbers that are not finite"
    LABELS = "labels are {}, {}; there have to be {} integers"
    CLASSES = "labels go from {} to {}; they have to be 0 to {}"
    TARGETS = "targets are {}, {}; there have to be ({}, {}) finite numbers"
    LABELS_OR_TARGETS = "give the examples' labels, or their targets for a ridge head; one of the two"
    NO_TARGETS = "targets are for a ridge head, SquaredL2, and the server's loss is {}: give labels"
    ONE_OUTPUT = "a ridge head of one output has no classes: give targets"
    MANY_ROWS = "there are {} rows here, and the server takes {} of a client at most: most_rows of its SquaredL2"
    BODY = (
        "the features have to come from the body {}, by its SHA-256, and train_head was told {}: "
        "train_head(body=rescind.flower.digest_body(module)) of the body that the server names"
    )
    NO_ARRAY = "{} cannot be made a numpy array of numbers: it is a {}"
    BIAS = "the bias has shape {}, for a weight of {}"
    PRECISION = "the head has to be {}: the server's training says so"
    FEW_ROWS = "there are {} rows here: sums over fewer than {} would tell too much"
    STEPS = "the server asks for {} local steps, and this client makes {} at most: Limits(steps=...) of train_head"
    RATE = (
        "the learning rate times the loss's curvature is {}, and this client takes {} at most: "
        "Limits(learning_rate=...) of train_head"
    )
    LENGTH = (
        "the model's norm times that of the longest row is {}, and this client answers up to {}: "
        "Limits(length=...) of train_head"
    )
    BATCH = (
        "the server chooses batches of {} of {} rows, which can tell it single rows: Limits(batch=...) of train_head "
        "allows them"
    )
    MESSAGES = "this client has answered {} times, which is its limit: Limits(messages=...) of train_head"
    SHARE = (
        "{} numbers would be told of rows that hold {}, and this client tells {} times as many at most: "
        "Limits(share=...) of train_head"
    )
    SETTINGS = "the server's settings are not those of its first message in this run: a run has one kind of training"
    COUNTS = "{} is no file of counts: give another name, or take it away and know that counting begins anew"
    NORMS = (
        "the server's {} is {}, and was {} when this client began to count: sums that differ in it alone can show "
        "single rows. If that is meant, begin a new file of counts"
    )
    ROWS_NOT_NAMED = (
        "request {} asks to forget some of this client's examples: name them with "
        "train_head(..., removed=..., request={}), or give an empty list if they are deleted already"
    )
    NOTHING_LEFT = "removed leaves no example: a client without any cannot take part"
    MASK = "removed is a mask of shape {}; there are {} rows"
    NO_MASK = "removed has to be a mask over the rows, or a list of their indices"
    NO_ROWS = "removed names rows from {} to {}; there are 0 to {}"
    WHOLE_NUMBERS = "removed is a mask of whole numbers, or names rows 0 and 1 again and again: give booleans"
    RECEIPTS = "{} is no file of rows that were left out: give another name, or take it away"
    NO_NAME = (
        'the SuperNode\'s --node-config has no client-id: add one, such as client-id="hospital-3". Where client i '
        "always has part i of the data, as in a simulation, identify_partition takes the place of identify"
    )
    WISH = (
        "the node-config says {}={}, and that is no signed request ({}): make one with rescind leave, and give its "
        'file, as in rescind-leave="/var/lib/hospital-3/leave.json", or leave it out'
    )
    NOT_THE_SERVER = (
        "this message does not have the password that this client told the server: it is not obeyed. Has the "
        "ClientApp app.query()(rescind.flower.identify)?"
    )
    NOTHING_KEPT = "this client kept nothing of this round's training: call keep_own before it is masked"
    RECORDS = "the server's message has to hold one record of arrays and one of settings"
    NO_TRAINING = "the server did not say how to train: its ServerApp has to run the strategy with rescind.flower.run"

    def error(self, *values: object) -> ValueError:
        """Return the error that says so, with values for the gaps."""
        return ValueError(self.format(*values))

    @property
    def shown(self) -> str:
        """The message without values."""
        return self.replace("{}", "...")


def recognise(text: str) -> Complaint | None:
    """Return which of the messages a text holds, if any; what stands in the gaps is not looked at."""
    return next((complaint for complaint in Complaint if _holds(text, complaint.split("{}"))), None)


def _holds(text: str, pieces: list[str]) -> bool:
    at = 0
    for piece in pieces:
        begin = text.find(piece, at)
        if begin < 0:
            return False
        at = begin + len(piece)
    return True
