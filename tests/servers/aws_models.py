"""AWS's SDK for Python as it was before it spoke JSON to SQS: the same code, by a model of the service that says so."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.broker.sqs.wire import query_description


def write_query_models(folder: Path) -> str:
    """A folder of models for AWS_DATA_PATH: who reads it speaks the Query protocol."""
    place = folder / "models" / "sqs" / "2012-11-05"
    place.mkdir(parents=True)
    (place / "service-2.json").write_text(json.dumps(query_description()))
    return str(folder / "models")
