"""`pta serve`: a running classifier whose streams learn, survive a crash and can be undone."""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from pta.cli import options
from pta.cli.messages import say, warn, write_stdout
from pta.cli.monitor_options import On, ReferenceFile
from pta.cli.output import require_folder_place
from pta.cli.quantities import parse_duration, parse_size
from pta.core.limits import USUAL_LIMITS, Limits
from pta.data.features import load_features
from pta.door.files import existing_file
from pta.errors import InvalidParameter, MissingPackage, how_to_install
from pta.monitor import ScoreReference, parse_reactions
from pta.monitor.monitor import WINDOW
from pta.serve.http.security import HttpSettings, LogFormat, new_token, own_token, read_token
from pta.serve.journal.journal import written_identity
from pta.serve.open_files import affordable_connections
from pta.serve.requests import ITS_LETTERS, NAME
from pta.serve.streams.served_model import ServedModel, ServiceSettings, written_parameters
from pta.serve.streams.service import Service


def _size(default: str | bool = True) -> Any:
    return Option(parser=parse_size, metavar="SIZE", show_default=default)


def _time(default: str | bool = True) -> Any:
    return Option(parser=parse_duration, metavar="TIME", show_default=default)


@dataclass(frozen=True, kw_only=True)
class ServedOptions:
    """What is served."""

    features_only: Annotated[
        Path | None, "No model: anchors, names and scale of this feature file.", Option(metavar="FILE")
    ] = None
    model: options.ModelOptions
    texts: options.TextOptions
    method: options.MethodOptions

    def adaptation(self, folder: Path | None) -> dict[str, Any]:
        """The method and its parameters; what is not given is as in the data folder, if there is one."""
        written = (folder and written_identity(folder)) or {}
        chosen = replace(self.method, method=self.method.method or written.get("method"))
        return {"method": chosen.name, "parameters": written_parameters(chosen.name, written) | chosen.parameters}

    def load(self, adaptation: dict[str, Any]) -> ServedModel:
        """The model, or the classifier of a feature file."""
        if self.features_only is not None:
            if self.texts.classes is not None:
                raise InvalidParameter("--classes: the feature file has the names; leave one of the two out")
            return ServedModel(load_features(self.features_only).classifier, **adaptation)
        names = self.texts.names()
        model = self.model.named
        texts = self.texts.of(names, model.modality.prompts)
        return ServedModel(texts.classifier(model.encoder), encoder=model.encoder, **adaptation)


@dataclass(frozen=True)
class HttpOptions:
    """How it is reached."""

    host: Annotated[str, "Address to listen on."] = "127.0.0.1"
    port: Annotated[int, "0 picks a free port.", Option(min=0, max=65535)] = 8080
    allowed_host: Annotated[
        list[str] | None, "A name that clients may ask for; localhost always is; may be repeated."
    ] = None
    root_path: Annotated[str, "The prefix that a proxy takes off the path, e.g. /pta."] = ""
    forwarded_allow_ips: Annotated[str, "Proxies whose X-Forwarded headers are believed."] = ""
    token_file: Annotated[
        Path | None, "File with the token.", Option(show_default="DATA/token, made at the first start")
    ] = None
    open_health: Annotated[bool, "live and ready need no token."] = False
    stream_metrics: Annotated[bool, "/metrics names the 100 streams with the most samples."] = False
    max_body: Annotated[int, "Largest request.", _size("32M")] = 32 * 2**20
    body_timeout: Annotated[float, "Timeout for receiving a request.", _time("30s")] = 30.0
    connections: Annotated[int, "Connections at the same time; half of them may watch events.", Option(min=1)] = (
        HttpSettings.connections
    )
    drain: Annotated[float, "Timeout for queued requests at the end.", _time("30s")] = 30.0
    log: Annotated[LogFormat, "Form of the line per request on stderr; none logs failures alone."] = "text"

    @property
    def address(self) -> str:
        """The host as it stands in an address."""
        return f"[{self.host}]" if ":" in self.host else self.host

    def settings(self, token: str) -> HttpSettings:
        """The same for the application."""
        most = affordable_connections(self.connections)
        if most < self.connections:
            given = f"--connections {self.connections:,}"
            warn(f"{given} is lowered to {most:,}, which the limit of open files allows (ulimit -n)")
        alike = ("open_health", "max_body", "body_timeout", "log", "root_path", "stream_metrics")
        hosts = (self.address, *(self.allowed_host or ()))
        return HttpSettings(
            token, allowed_hosts=hosts, connections=most, **{name: getattr(self, name) for name in alike}
        )


@dataclass(frozen=True)
class StreamOptions:
    """What streams may do."""

    name: Annotated[str, "What the model is called in the routes."] = "pta"
    max_pixels: options.MaxPixels = USUAL_LIMITS.max_pixels
    max_request_pixels: Annotated[int, "Refuse requests whose pictures together have more pixels.", Option(min=1)] = (
        ServiceSettings.max_request_pixels
    )
    quota: Annotated[int | None, "Samples that a stream learns per minute.", Option(min=1, show_default="no limit")] = (
        None
    )
    auto_create: Annotated[int, "Streams that may be made by their first request.", Option(min=0)] = 0
    journal_max: Annotated[int | None, "When the journal is larger, its oldest part is dropped.", _size()] = None
    stream_memory: Annotated[int, "Memory of streams; those used least are loaded when asked for.", _size("512M")] = (
        ServiceSettings.stream_memory
    )
    reject_below: options.RejectBelow = None
    reject_holds: options.RejectHolds = None
    on: On = None
    silent_after: Annotated[float | None, "Raise the alarm silent after so long without a sample.", _time()] = None
    reference: ReferenceFile = None
    window: Annotated[int, "Samples that health is measured over, a multiple of 64."] = WINDOW
    repair: Annotated[bool, "Go on from the rows that are whole; the rest is set aside."] = False

    def settings(self) -> ServiceSettings:
        """The same for the service."""
        if self.silent_after == 0:
            raise InvalidParameter("--silent-after must be more than 0 seconds")
        if self.reference is not None:
            existing_file(self.reference, "reference")
        given = {name: value for name, value in vars(self).items() if name not in ("max_pixels", "on", "reference")}
        limits, reactions = Limits(max_pixels=self.max_pixels), parse_reactions(self.on or ())
        return ServiceSettings(**given, limits=limits, reactions=reactions)


def serve(
    *,
    data: Annotated[Path | None, "Folder for the journal and the state; made if missing."] = None,
    no_journal: Annotated[bool, "Keep nothing: what is learned ends here."] = False,
    model: ServedOptions,
    http: HttpOptions,
    streams: StreamOptions,
) -> None:
    """Serve a model, classes and a method over HTTP: streams that learn, survive a crash and can be undone."""
    try:
        from pta.serve.http.app import create_app
        from pta.serve.http.server import Server, configured, listen
    except ModuleNotFoundError as error:
        raise MissingPackage(f"pta serve needs {error.name}; {how_to_install('serve')}") from None
    if data is None and not no_journal:
        raise InvalidParameter("--data is required: a folder on a local disk, or --no-journal to keep nothing")
    if not re.fullmatch(NAME, streams.name):
        raise InvalidParameter(f"--name {streams.name}: a name has {ITS_LETTERS}")
    if not re.fullmatch(r"(/[\w.~-]+)*", http.root_path):
        raise InvalidParameter(f"--root-path {http.root_path}: it begins with / and does not end with it, e.g. /pta")
    require_folder_place(data)
    folder = None if no_journal else data
    settings = streams.settings()
    adaptation = model.adaptation(folder)
    token = None if http.token_file is None else read_token(http.token_file)
    show_token = token is None and sys.stdout is not None and sys.stdout.isatty()
    if token is None and folder is None and not show_token:
        raise InvalidParameter("--no-journal: a new token is shown on a terminal only; --token-file names one")
    with listen(http.host, http.port):
        pass  # a port in use is refused before a model is loaded
    served = model.load(adaptation)
    if streams.reference is not None:
        settings = replace(settings, reference=ScoreReference.load(streams.reference, served.classifier))
    with Service.open(served, folder, settings) as service:
        if token is None:
            token = new_token() if folder is None else own_token(folder / "token")
        app = create_app(service, http.settings(token))
        with listen(http.host, http.port) as socket:
            address = f"http://{http.address}:{socket.getsockname()[1]}"
            sign_in = f" (sign in with the token in {http.token_file or (folder and folder / 'token')})"
            entrance = f"{address}/" + (f"#token={token}" if show_token else sign_in)
            if not service.shape.durable:
                warn("--no-journal: nothing is durable; what is learned ends with this process")
            say(f"{service.shape.method} for {service.shape.classes:,} classes on {address}")
            write_stdout(lambda: print(entrance))  # how to sign in, because what stderr gets may be kept
            Server(configured(app, http.forwarded_allow_ips), service, http.drain).run(sockets=[socket])
