"""`pta serve`: a running classifier whose streams learn, survive a crash and can be undone."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from pta.cli import options
from pta.cli.messages import say, warn, writing_stdout
from pta.cli.method_choice import around, settings_of
from pta.cli.quantities import parse_duration, parse_size
from pta.datasets.features import load_features
from pta.encoders import DEFAULT_MODEL, load_encoder
from pta.errors import InvalidParameter, MissingPackage, how_to_install
from pta.limits import USUAL_LIMITS, Limits
from pta.prompts import build_classifier, default_cache, load_templates
from pta.serve.http_settings import HttpSettings, LogFormat
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
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8080,
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
    max_pixels: options.MaxPixels = USUAL_LIMITS.max_pixels,
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
    own: dict[str, Any] = {"method": method, "parameters": around(prior, calibration) | settings_of(method, set_ or [])}
    if features_only is not None:
        if classes is not None:
            raise InvalidParameter("--classes: the feature file has the names; leave one of the two out")
        served = Served(load_features(features_only).classifier, **own)
    else:
        if classes is None:
            raise InvalidParameter("--classes is required: a file with one name per line, or cat,dog,bird")
        encoder = load_encoder(model, device=device, dtype=dtype)
        prompts = load_templates(templates, encoder.modality.prompts)
        described = options.read_descriptions(descriptions)
        names = options.read_classes(classes)
        anchors = build_classifier(encoder, names, prompts, descriptions=described, cache=default_cache())
        served = Served(anchors, encoder=encoder, **own)
    settings = ServiceSettings(
        name=name,
        quota=quota,
        auto_create=auto_create,
        journal_max=journal_max,
        repair=repair,
        limits=Limits(max_pixels=max_pixels),
    )
    named = f"[{host}]" if ":" in host else host
    with Service.open(served, None if no_journal else data, settings) as service:
        token = _token(token_file, None if no_journal else data)
        http = HttpSettings(
            token,
            allowed_hosts=(named, *(allowed_host or ())),
            open_health=open_health,
            max_body=max_body,
            body_timeout=body_timeout,
            log=log,
            root_path=root_path,
            stream_metrics=stream_metrics,
        )
        app = create_app(service, http)
        with listen(host, port) as socket:
            address = f"http://{named}:{socket.getsockname()[1]}"
            _announce(service.shape, address, None if token_file else token)
            run(app, service, socket, drain=drain, forwarded_allow_ips=forwarded_allow_ips)


def _token(file: Path | None, data: Path | None) -> str:
    if file is not None:
        return read_token(file)
    return new_token() if data is None else own_token(data / "token")


def _announce(shape: Shape, address: str, token: str | None) -> None:
    """Say what is served; the login link goes to stdout, because what stderr gets may be kept."""
    if not shape.durable:
        warn("--no-journal: nothing is durable; what is learned ends with this process")
    say(f"{shape.method} for {shape.classes:,} classes on {address}")
    if token is not None:
        print(f"{address}/#token={token}")
    with writing_stdout():
        pass
