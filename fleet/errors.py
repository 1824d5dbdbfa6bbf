"""Every error Fleet raises on purpose. The docstring of each is what its user reads.

FleetError
├── InvalidMessage          a body that can never be delivered
├── InvalidConfig           a router configuration or setting that cannot be applied
├── StateError
│   ├── StateUnavailable    Redis cannot be reached, or refuses us
│   │   └── NotUp           no fleet runs here, or it is just coming up
│   ├── StateFull           Redis has no memory left for what we asked
│   ├── LeaseLapsed         we did not renew it in time: another may have it
│   └── Fenced              somebody with a newer epoch has taken over
│       └── Disordered      more is out at the source than is known of: whoever polls next waits for it
│           └── Forgotten   Redis has lost what it told us last: we know more than it does
├── SourceError
│   ├── SourceUnavailable   the queue cannot be reached just now; trying again may help
│   └── SourceFull          the queue cannot take more (a full disk, a quota)
├── SqsError                what the SQS door answers on purpose (`fleet/broker/sqs/errors.py`)
├── SparkGone               the Spark that a driver works with has ended; the driver has to begin anew
├── BrokerError             the broker refuses the call: a tree of its own, in fleet/broker/errors.py
├── InvalidJob              a job, an event or a subscription that can never be accepted
└── JobStoreError           the database of jobs refuses the call
    └── JobStoreUnavailable it cannot be reached just now; trying again may help
"""

from __future__ import annotations


class FleetError(Exception):
    """Something went wrong."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail or (type(self).__doc__ or "").strip().rstrip("."))


class InvalidMessage(FleetError):
    """The message can never be delivered as it is."""


class InvalidConfig(FleetError):
    """The configuration cannot be applied."""


class StateError(FleetError):
    """The shared state refused the call."""


class StateUnavailable(StateError):
    """Redis cannot be reached."""


class NotUp(StateUnavailable):
    """No fleet runs here, or it is just coming up."""


class StateFull(StateError):
    """Redis has no memory left."""


class LeaseLapsed(StateError):
    """A lease was not renewed in time."""

    def __init__(self, queue: str) -> None:
        super().__init__(f"the lease on queue {queue} lapsed")


class Fenced(StateError):
    """A newer epoch has taken over."""

    def __init__(self, detail: str = "", *, epoch: str = "0") -> None:
        super().__init__(detail)
        self.epoch = epoch
        """The newer epoch, if it is known."""


class Disordered(Fenced):
    """More is out at the source than is known of."""


class Forgotten(Disordered):
    """Redis has lost its last writes."""


class SourceError(FleetError):
    """The queue refused the call."""


class SourceUnavailable(SourceError):
    """The queue cannot be reached."""


class SourceFull(SourceError):
    """The queue cannot take more messages."""


class SparkGone(FleetError):
    """Spark has ended."""


class InvalidJob(FleetError):
    """The job can never be accepted."""


class JobStoreError(FleetError):
    """The job store refused the call."""


class JobStoreUnavailable(JobStoreError):
    """The job store cannot be reached."""
