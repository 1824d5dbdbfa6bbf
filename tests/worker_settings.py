"""What a worker in the process of a test is set to."""

from __future__ import annotations

from fleet.config.settings import HttpSettings, LeaseSettings, RedisSettings, Settings, WorkerSettings


def worker_settings(
    url: str,
    *,
    ttl_ms: int = 10_000,
    timeout_ms: int = 5_000,
    max_in_flight: int = 10,
    stop_within_s: float = 0.1,
) -> Settings:
    return Settings(
        redis=RedisSettings(url=url),
        lease=LeaseSettings(ttl_ms=ttl_ms),
        http=HttpSettings(timeout_ms=timeout_ms),
        worker=WorkerSettings(max_in_flight=max_in_flight, stop_within_s=stop_within_s),
    )
