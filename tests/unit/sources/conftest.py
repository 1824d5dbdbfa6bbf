from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.moto import aws_settings
from tests.servers.scripted_sqs import ScriptedSqs, scripted_sqs


@pytest.fixture
def sqs() -> Iterator[ScriptedSqs]:
    with aws_settings(), scripted_sqs() as server:
        yield server
