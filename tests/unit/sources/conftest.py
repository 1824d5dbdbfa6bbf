from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.moto_server import aws_settings
from tests.scripted_sqs import ScriptedSqs, scripted_sqs


@pytest.fixture
def sqs() -> Iterator[ScriptedSqs]:
    with aws_settings(), scripted_sqs() as server:
        yield server
