"""What delivers dispatch jobs here, by the rules that workers have."""

from __future__ import annotations

from functools import partial

from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config.settings import Settings
from fleet.delivery.breakers import Breakers
from fleet.delivery.client import HttpClient
from fleet.delivery.egress import Rules
from fleet.delivery.signatures import Signatures
from fleet.jobs.app_key import app_key
from fleet.jobs.store import open_store
from fleet.processing.process import AT_ONCE, THREADS, Processor
from fleet.processing.signers import JobSigners
from fleet.state.connect import Client
from fleet.state.registry import Registry

_WINDOW_OF_OTHERS = 100
"""A driver elsewhere may have a larger window than we were given."""


def http_client(settings: Settings, rules: Rules) -> HttpClient:
    return HttpClient(
        forbidden=rules.forbids_address,
        http_version=settings.http.version,
        connect_timeout_ms=settings.http.connect_timeout_ms,
        max_idle_connections=AT_ONCE * 2,
    )


def job_processor(
    settings: Settings,
    *,
    client: Client,
    http: HttpClient,
    rules: Rules,
    clock: Clock,
    alarms: Alarms,
    breakers: Breakers,
) -> Processor:
    signers = JobSigners(
        registry=Registry(client),
        signatures=Signatures(client=client, alarms=alarms),
        clock=clock,
        default_pool=settings.feed.default_dispatch_pool_code,
    )
    return Processor(
        open_store=partial(open_store, settings, connections=THREADS, durable=False),
        read_key=partial(app_key, settings),
        http=http,
        clock=clock,
        forbids_url=rules.forbids_url,
        signers=signers,
        breakers=breakers,
        window=max(settings.feed.window, _WINDOW_OF_OTHERS),
    )
