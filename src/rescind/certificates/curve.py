"""Which 32 bytes are an Ed25519 public key that one private key belongs to: the library takes any."""

from __future__ import annotations

_P = 2**255 - 19
# The curve is -x^2 + y^2 = 1 + d x^2 y^2.
_D = -121665 * pow(121666, -1, _P) % _P
# The points of small order come back to the neutral point after three doublings; nobody has to know a key to sign
# for one of these.
_COFACTOR_DOUBLINGS = 3


def is_sound(public: bytes) -> bool:
    """Return whether the bytes are a point of the curve, in its one spelling, and none of the eight of small order.

    RFC 8032, section 5.1.3.
    """
    # The highest bit is the sign of x, and both signs are points.
    y = int.from_bytes(public, "little") % 2**255
    if len(public) != 32 or y >= _P:
        return False
    squared = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    # No root, or x = 0, where the order is 1 or 2.
    if pow(squared, (_P - 1) // 2, _P) != 1:
        return False
    # For the order the squares are enough: x^2 and y of the double follow from x^2 and y.
    for _ in range(_COFACTOR_DOUBLINGS):
        product = _D * squared * y * y % _P
        y, squared = (
            (y * y + squared) * pow(1 - product, -1, _P) % _P,
            4 * squared * y * y * pow(1 + product, -2, _P) % _P,
        )
    return (squared, y) != (0, 1)
