"""Standard Webhooks signatures. What is expected was published with the specification, or made by `openssl dgst`."""

from __future__ import annotations

import pytest

from fleet.errors import InvalidConfig
from fleet.sign import Signer

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ULID = "01K97FHM11EKYSXT135MVM6AC7"
BODY = b'{"messageId":"01K97FHM11EKYSXT135MVM6AC7"}'
BY_SECRET = "v1,t1W5K7SU0huxtDTZ58H5YbawUAnWSl0sPfpbWMOFRBw="
BY_RAW = "v1,SvF4Svvii+DmfMsT5D6MqR8EUDLWZaxAHzF71IWjByI="


def test_the_published_vector_comes_out() -> None:
    assert Signer(SECRET).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}') == [
        "webhook-id: msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp: 1614265330",
        "webhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ]


def signature(signer: Signer, timestamp_s: int = 1700000000, body: bytes = BODY) -> str:
    return signer.headers(ULID, timestamp_s, body)[2].removeprefix("webhook-signature: ")


def test_a_delivery_is_signed_with_the_decoded_secret() -> None:
    assert signature(Signer(SECRET)) == BY_SECRET


def test_an_encoded_key_may_hold_any_byte() -> None:
    zeros_and_ones = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA//////////8="
    headers = Signer(zeros_and_ones).headers("m", 0, b"")
    assert headers[2] == "webhook-signature: v1,Ejy2w6jdwQ3W03tQGn7jbSJMxNCfJRyaNP4cL9oc5ug="


def test_a_secret_without_the_prefix_is_taken_as_it_is() -> None:
    # openssl dgst -sha256 -hmac a-raw-secret
    assert signature(Signer("a-raw-secret")) == BY_RAW


def test_while_a_secret_is_replaced_both_sign_in_their_order() -> None:
    assert signature(Signer(f"{SECRET} a-raw-secret")) == f"{BY_SECRET} {BY_RAW}"
    assert signature(Signer(f" a-raw-secret\n{SECRET} ")) == f"{BY_RAW} {BY_SECRET}"


def test_the_id_the_time_and_the_body_are_all_signed() -> None:
    signer = Signer(SECRET)
    others = {signature(signer, timestamp_s=1700000001), signature(signer, body=BODY + b" ")}
    others.add(signer.headers(ULID + "0", 1700000000, BODY)[2].partition(": ")[2])
    assert len(others) == 3 and BY_SECRET not in others


@pytest.mark.parametrize("secrets", ["", "  ", "whsec_", "whsec_not base64", "whsec_abc", "whsec_ä", "whsec_a-_b"])
def test_what_is_no_secret_is_an_error_that_does_not_show_it(secrets: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        Signer(secrets)
    assert all(part not in str(refused.value) for part in ("abc", "not base64", "ä", "a-_b"))
