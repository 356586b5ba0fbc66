"""Why a broker's certificate is refused: librdkafka says only that it is."""

from __future__ import annotations

import re
import socket
import ssl

from spanlite.transport.kafka_settings import KafkaSettings

_BROKER = re.compile(r"ssl://(\[[^]]+\]|[^:/\s]+):(\d+)")
_TIMEOUT_S = 3.0


def why_refused(settings: KafkaSettings, text: str) -> str:
    """Asks the broker that an error of librdkafka names for its certificate once more.

    Args:
        settings: whose authority is trusted.
        text: the error, with `ssl://HOST:PORT` in it.

    Returns:
        OpenSSL's reason, such as `certificate has expired`; empty when the text names no broker, or nothing is wrong
        that Python's ssl module can see.
    """
    broker = _BROKER.search(text)
    if broker is None:
        return ""
    host, port = broker.group(1).strip("[]"), int(broker.group(2))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.properties.get("ssl.endpoint.identification.algorithm", "https") != "none"
    try:
        _trust(context, settings)
        with (
            socket.create_connection((host, port), timeout=_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except OSError:  # another fault than the certificate; librdkafka's own words must do
        return ""


def _trust(context: ssl.SSLContext, settings: KafkaSettings) -> None:
    location, pem = settings.properties.get("ssl.ca.location"), settings.properties.get("ssl.ca.pem")
    if location and location != "probe":
        context.load_verify_locations(cafile=location)
    elif pem:
        context.load_verify_locations(cadata=pem)
    else:
        context.load_default_certs()
