"""What boto3 alone does: receive ten, delete ten, until all are gone. `python -m benchmark.peers.bare_sqs URL COUNT`"""

from __future__ import annotations

import sys
import time
from urllib.parse import urlsplit

import boto3


def main(url: str, count: int) -> None:
    parts = urlsplit(url)
    sqs = boto3.client("sqs", endpoint_url=f"{parts.scheme}://{parts.netloc}")
    deleted = 0
    began = time.perf_counter()
    while deleted < count:
        received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20)
        messages = received.get("Messages", [])
        if not messages:
            raise SystemExit(f"the queue is empty after {deleted} of {count} messages")
        entries = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(messages)]
        deleted += len(sqs.delete_message_batch(QueueUrl=url, Entries=entries)["Successful"])
    print(time.perf_counter() - began)  # noqa: T201 (its only answer)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
