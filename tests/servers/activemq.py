"""A real ActiveMQ for tests, as Debian packages it: a private process with a configuration of our own, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import DEVNULL, STDOUT, Popen

from tests.servers.local import ServerFailed, ServerProcess, _accepts, _program, _wait_for
from tests.servers.ports import free_port

_LIB = Path("/usr/share/activemq/lib")
_XSTREAM = [Path("/usr/share/java", jar) for jar in ("xstream.jar", "xpp3.jar")]
"""Debian's package leaves it out, and without it the broker can write no statistics for a STOMP client."""
MOST_BODY_BYTES = 1024 * 1024


@dataclass
class ActiveMqServer:
    directory: Path
    port: int
    has_plugins: bool = True
    process: ServerProcess = field(init=False)

    def uri(self, queue: str, *, port: int | None = None) -> str:
        return f"stomp://127.0.0.1:{port or self.port}/{queue}"

    def start(self) -> None:
        """Also after `kill`, with the port and the storage that it had."""
        (self.directory / "activemq.xml").write_text(_CONF.format(server=self, plugins=_PLUGINS * self.has_plugins,
                                                                  most=MOST_BODY_BYTES))  # fmt: skip
        (self.directory / "log4j.properties").write_text(_LOG)
        jars = [str(_LIB / "*"), str(_LIB / "optional" / "*"), *(map(str, _XSTREAM) if self.has_plugins else ())]
        command = [_program("java"), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dlog4j.configuration=file:{self.directory}/log4j.properties"]
        command += [f"-Dactivemq.base={self.directory}", f"-Dactivemq.home={_LIB.parent}", "-cp", ":".join(jars)]
        command += ["org.apache.activemq.console.Main", "start", f"xbean:file:{self.directory}/activemq.xml"]
        log = self.directory / "broker.log"
        with log.open("ab") as output:
            # setpriv: a killed pytest must not leave its servers behind.
            process = Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,
            )
        self.process = ServerProcess(process, log)
        _wait_for(self.process, lambda: _accepts(self.port))

    def kill(self) -> None:
        self.process.kill()

    def restart(self) -> None:
        self.kill()
        self.start()


@contextmanager
def running_activemq(directory: Path, *, has_plugins: bool = True) -> Iterator[ActiveMqServer]:
    """A broker that keeps its messages in `directory`; without plugins it delays nothing and gives no statistics."""
    for package, path in {"activemq": _LIB, "libxstream-java": _XSTREAM[0]}.items():
        if not path.exists():
            raise ServerFailed(f"{package} is not installed; scripts/test installs what the tests need")
    directory.mkdir(parents=True, exist_ok=True)
    server = ActiveMqServer(directory, free_port(), has_plugins)
    try:
        server.start()
        yield server
    finally:
        with suppress(AttributeError):  # it was not even started
            server.process.stop()


_PLUGINS = "<plugins><statisticsBrokerPlugin/></plugins>"
_CONF = """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="http://www.springframework.org/schema/beans
    http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
    http://activemq.apache.org/schema/core http://activemq.apache.org/schema/core/activemq-core.xsd">
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="fleet" useJmx="false"
          dataDirectory="{server.directory}/data" schedulerSupport="{server.has_plugins}">
    <persistenceAdapter><kahaDB directory="{server.directory}/kahadb" journalMaxFileLength="4mb"/></persistenceAdapter>
    {plugins}
    <transportConnectors>
      <transportConnector name="stomp" uri="stomp://127.0.0.1:{server.port}?wireFormat.maxDataLength={most}"/>
    </transportConnectors>
  </broker>
</beans>
"""
_LOG = """log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c{1} %m%n
"""
