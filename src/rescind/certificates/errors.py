"""What can be wrong with a certificate: one exception a kind, each with the exit code of the command line."""

from __future__ import annotations

from typing import ClassVar


class CertificateError(Exception):
    """Something is wrong with a certificate, or with a key."""

    exit_code: ClassVar[int] = 1


class UnusableKeyError(CertificateError):
    """A key cannot be used."""

    exit_code = 10


class NotACertificateError(CertificateError):
    """The file is no signed statement of ours: broken JSON, another type, a field too many or too few."""

    exit_code = 11


class UnsignedCertificateError(CertificateError):
    """Fewer of the given keys signed it than are wanted."""

    exit_code = 12


class ModelMismatchError(CertificateError):
    """The model at hand is not the one that it is about."""

    exit_code = 13


class InconsistentCertificateError(CertificateError):
    """Its texts do not follow from its facts, or its numbers from one another."""

    exit_code = 14


class HistoryMismatchError(CertificateError):
    """The history at hand is not the one that it is about, or does not say what the certificate says."""

    exit_code = 15


class AnnexMismatchError(CertificateError):
    """The annex at hand does not belong to the certificate, or does not fit it."""

    exit_code = 16


class ReceiptMismatchError(CertificateError):
    """Whose receipt it is was not forgotten by the request that the certificate is about."""

    exit_code = 17


class ReplayedRequestError(CertificateError):
    """A signed request was handed in before."""

    exit_code = 18


class ForeignRequestError(CertificateError):
    """A signed request is for another federation."""

    exit_code = 19


class UnregisteredKeyError(CertificateError):
    """The key of a signed request is that of no client."""

    exit_code = 20


class StaleRequestError(CertificateError):
    """A signed request is too old, or from a day that is still to come."""

    exit_code = 21


class RequestMismatchError(CertificateError):
    """The signed request at hand is not the one that the certificate is about."""

    exit_code = 22


class TimeStampError(CertificateError):
    """A time stamp is missing, is of something else, or is not its authority's."""

    exit_code = 23
