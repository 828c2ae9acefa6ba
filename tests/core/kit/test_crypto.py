"""Encryption of secrets: valid ciphertexts decrypt, altered or moved ones do not."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.kit.crypto import CannotDecrypt, KeyRing, derive, sign, verify

OLD, NEW = os.urandom(32), os.urandom(32)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.text(max_size=20))
def test_what_was_encrypted_for_a_place_decrypts_there(value: str, name: str) -> None:
    ring = KeyRing((OLD,))
    place = f"1/project:2/{name.encode().hex()}"

    assert ring.decrypt(ring.encrypt(value, place=place), place=place) == value


def test_the_same_value_never_looks_the_same() -> None:
    ring = KeyRing((OLD,))

    assert ring.encrypt("x", place="p") != ring.encrypt("x", place="p")


def test_a_ciphertext_that_was_moved_does_not_decrypt() -> None:
    ring = KeyRing((OLD,))
    ciphertext = ring.encrypt("x", place="1/project:2/TOKEN")

    with pytest.raises(CannotDecrypt):
        ring.decrypt(ciphertext, place="2/project:2/TOKEN")


def test_a_ciphertext_with_any_character_changed_does_not_decrypt() -> None:
    ring = KeyRing((OLD,))
    ciphertext = ring.encrypt("secret", place="p")

    for at in range(len(ciphertext)):
        changed = ciphertext[:at] + ("A" if ciphertext[at] != "A" else "B") + ciphertext[at + 1 :]
        try:
            value = ring.decrypt(changed, place="p")
        except CannotDecrypt:
            continue
        # The last character of unpadded base64 has unused bits, which may change.
        assert value == "secret"
        assert at == len(ciphertext) - 1 or ciphertext[at + 1] == "."


def test_after_a_rotation_old_ciphertexts_decrypt_and_new_ones_name_the_new_key() -> None:
    before = KeyRing((OLD,)).encrypt("x", place="p")
    ring = KeyRing((NEW, OLD))

    after = ring.encrypt(ring.decrypt(before, place="p"), place="p")

    assert not ring.is_current(before)
    assert ring.is_current(after)
    assert KeyRing((NEW,)).decrypt(after, place="p") == "x"
    with pytest.raises(CannotDecrypt, match="not among the master keys"):
        KeyRing((NEW,)).decrypt(before, place="p")


@pytest.mark.parametrize("text", ["", "v1", "v2.a.b.c", "v1.x.y.z", "....", "v1.é.b.c", "plain"])
def test_what_is_no_ciphertext_is_refused(text: str) -> None:
    with pytest.raises(CannotDecrypt):
        KeyRing((OLD,)).decrypt(text, place="p")


def test_a_ring_shows_no_key() -> None:
    assert OLD.hex() not in repr(KeyRing((OLD,)))
    assert repr(OLD) not in repr(KeyRing((OLD,)))


def test_keys_of_different_purposes_differ_and_signatures_hold_for_one() -> None:
    one, other = derive(OLD, "session"), derive(OLD, "cursor")

    assert one != other
    assert verify(one, b"message", sign(one, b"message"))
    assert not verify(other, b"message", sign(one, b"message"))
    assert not verify(one, b"massage", sign(one, b"message"))
