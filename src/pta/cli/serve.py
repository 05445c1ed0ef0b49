"""`pta serve`: a running classifier whose streams learn, survive a crash and can be undone."""

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pta.cli import options
from pta.cli.before_loading import ClassTexts, NamedModel, read_classes
from pta.cli.messages import say, warn, writing_stdout
from pta.cli.method_choice import parameters_of
from pta.cli.output import require_folder_place
from pta.cli.quantities import parse_duration, parse_size
from pta.data.features import load_features
from pta.door.limits import USUAL_LIMITS, Limits
from pta.errors import InvalidParameter, MissingPackage, how_to_install
from pta.models import DEFAULT_MODEL
from pta.serve.http_settings import HttpSettings, LogFormat
from pta.serve.open_files import affordable_connections
from pta.serve.requests import ITS_LETTERS, NAME
from pta.serve.security import new_token, own_token, read_token
from pta.serve.served import Served, ServiceSettings, Shape
from pta.serve.service import Service


def serve(
    data: Annotated[Path | None, typer.Option(help="Folder for the journal and the state; made if missing.")] = None,
    features_only: Annotated[
        Path | None, typer.Option(metavar="FILE", help="No model: anchors, names and scale of this feature file.")
    ] = None,
    model: options.Model = DEFAULT_MODEL,
    classes: options.Classes = None,
    templates: options.Templates = "clip",
    descriptions: options.Descriptions = None,
    method: Annotated[str, typer.Option(help="How to adapt; see pta methods.")] = "pta",
    set_: options.Set = None,
    prior: options.Prior = None,
    calibration: options.Calibration = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "float32",
    name: Annotated[str, typer.Option(help="What the model is called in the routes.")] = "pta",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 picks a free port.")] = 8080,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="A name that clients may ask for; localhost always is; may be repeated.")
    ] = None,
    root_path: Annotated[str, typer.Option(help="The prefix that a proxy takes off the path, e.g. /pta.")] = "",
    forwarded_allow_ips: Annotated[str, typer.Option(help="Proxies whose X-Forwarded headers are believed.")] = "",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token.", show_default="DATA/token, made at the first start")
    ] = None,
    open_health: Annotated[bool, typer.Option("--open-health", help="live and ready need no token.")] = False,
    stream_metrics: Annotated[bool, typer.Option("--stream-metrics", help="Name the streams in /metrics.")] = False,
    max_body: Annotated[
        int, typer.Option(parser=parse_size, metavar="SIZE", help="Largest request.", show_default="32M")
    ] = 32 * 2**20,
    body_timeout: Annotated[
        float, typer.Option(parser=parse_duration, metavar="TIME", help="For a request to arrive.", show_default="30s")
    ] = 30.0,
    connections: Annotated[
        int, typer.Option(min=1, help="Connections at once; half of them may watch events.")
    ] = HttpSettings.connections,
    max_pixels: options.MaxPixels = USUAL_LIMITS.max_pixels,
    max_request_pixels: Annotated[
        int, typer.Option(min=1, help="Refuse requests whose pictures together have more pixels.")
    ] = ServiceSettings.max_request_pixels,
    quota: Annotated[
        int | None, typer.Option(min=1, help="Samples that a stream learns per minute.", show_default="no limit")
    ] = None,
    auto_create: Annotated[int, typer.Option(min=0, help="Streams that may be made by their first request.")] = 0,
    journal_max: Annotated[
        int | None,
        typer.Option(parser=parse_size, metavar="SIZE", help="When the journal is larger, its oldest part is dropped."),
    ] = None,
    no_journal: Annotated[bool, typer.Option("--no-journal", help="Keep nothing: what is learned ends here.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Go on from the rows that are whole; the rest is set aside.")
    ] = False,
    drain: Annotated[
        float,
        typer.Option(parser=parse_duration, metavar="TIME", help="For queued work to end.", show_default="30s"),
    ] = 30.0,
    log: Annotated[LogFormat, typer.Option(help="Form of the line per request on stderr.")] = "text",
) -> None:
    """Serve a model, classes and a method over HTTP: streams that learn, survive a crash and can be undone."""
    try:
        from pta.serve.app import create_app
        from pta.serve.server import listen, run
    except ModuleNotFoundError as error:
        raise MissingPackage(f"pta serve needs {error.name}; {how_to_install('serve')}") from None
    if data is None and not no_journal:
        raise InvalidParameter("--data is required: a folder on a local disk, or --no-journal to keep nothing")
    if not re.fullmatch(NAME, name):
        raise InvalidParameter(f"--name {name}: a name has {ITS_LETTERS}")
    if not re.fullmatch(r"(/[\w.~-]+)*", root_path):
        raise InvalidParameter(f"--root-path {root_path}: it begins with / and does not end with it, e.g. /pta")
    own: dict[str, Any] = {"method": method, "parameters": parameters_of(method, set_ or [], prior, calibration)}
    require_folder_place(data)
    token = None if token_file is None else read_token(token_file)
    own_file = None if data is None or no_journal else data / "token"
    show_token = token is None and sys.stdout is not None and sys.stdout.isatty()
    if token is None and own_file is None and not show_token:
        raise InvalidParameter("--no-journal: a new token is shown on a terminal only; --token-file names one")
    with listen(host, port):
        pass  # a port in use is refused before a model is loaded
    if features_only is not None:
        if classes is not None:
            raise InvalidParameter("--classes: the feature file has the names; leave one of the two out")
        served = Served(load_features(features_only).classifier, **own)
    else:
        names = read_classes(classes)
        loadable = NamedModel(model, device, dtype)
        texts = ClassTexts.read(names, templates, descriptions, loadable.modality.prompts)
        served = Served(texts.classifier(loadable.encoder), encoder=loadable.encoder, **own)
    settings = ServiceSettings(
        name=name,
        quota=quota,
        auto_create=auto_create,
        journal_max=journal_max,
        repair=repair,
        limits=Limits(max_pixels=max_pixels),
        max_request_pixels=max_request_pixels,
    )
    named = f"[{host}]" if ":" in host else host
    with Service.open(served, None if no_journal else data, settings) as service:
        if token is None:
            token = new_token() if own_file is None else own_token(own_file)
        http = HttpSettings(
            token,
            allowed_hosts=(named, *(allowed_host or ())),
            open_health=open_health,
            max_body=max_body,
            body_timeout=body_timeout,
            connections=_affordable(connections),
            log=log,
            root_path=root_path,
            stream_metrics=stream_metrics,
        )
        app = create_app(service, http)
        with listen(host, port) as socket:
            address = f"http://{named}:{socket.getsockname()[1]}"
            sign_in = f" (sign in with the token in {token_file or own_file})"
            _announce(service.shape, address, f"{address}/" + (f"#token={token}" if show_token else sign_in))
            run(app, service, socket, drain=drain, forwarded_allow_ips=forwarded_allow_ips)


def _affordable(connections: int) -> int:
    most = affordable_connections(connections)
    if most < connections:
        warn(f"--connections {connections:,} is lowered to {most:,}, which the limit of open files allows (ulimit -n)")
    return most


def _announce(shape: Shape, address: str, entrance: str) -> None:
    """Say what is served; how to sign in goes to stdout, because what stderr gets may be kept."""
    if not shape.durable:
        warn("--no-journal: nothing is durable; what is learned ends with this process")
    say(f"{shape.method} for {shape.classes:,} classes on {address}")
    with writing_stdout():
        print(entrance)
