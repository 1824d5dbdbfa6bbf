"""A message that is checked before it is written is one that whoever reads it takes, and the other way round."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import InvalidMessage
from fleet.message import MAX_BODY_BYTES, DispatchMode, Message, decode, encode, encode_checked

texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=130), st.sampled_from(["", "a" * 129, "x\n", "http://"])
)
targets = st.one_of(texts, texts.map(lambda text: f"http://{text}"))
modes = st.sampled_from([None, "IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR", "SOMETIMES"])


@given(name=texts, target=targets, pool=texts, token=texts, group=st.none() | texts, mode=modes)
def test_what_is_written_is_what_is_taken(**fields: Any) -> None:
    message = Message(
        id=fields["name"],
        mediation_target=fields["target"],
        pool_code=fields["pool"],
        auth_token=fields["token"],
        message_group_id=fields["group"],
        dispatch_mode=cast("DispatchMode | None", fields["mode"]),
    )
    try:
        body = encode_checked(message)
    except InvalidMessage as refusal:
        try:
            decode(encode(message))
        except InvalidMessage as error:
            # Of a mode the reader says where in the text it stands.
            assert str(error) == str(refusal) or "dispatchMode" in str(refusal)
        else:
            raise AssertionError(f"would have been taken: {refusal}") from refusal
    else:
        assert decode(body) == message


def test_a_body_that_is_too_long_is_not_written() -> None:
    message = Message(id="m", mediation_target="http://" + "a" * MAX_BODY_BYTES)
    for write in (encode_checked, lambda one: decode(encode(one))):
        try:
            write(message)
        except InvalidMessage as error:
            assert str(error).endswith(f"the limit is {MAX_BODY_BYTES}")
        else:
            raise AssertionError("it was taken")
