"""A stand-in with the options of curl that the documentation uses, for machines without curl."""

import argparse
import sys
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit


def main() -> None:
    options = _parse_options()
    parts = urlsplit(options.url if "://" in options.url else f"http://{options.url}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = dict(header.split(": ", 1) for header in options.header)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request("GET" if options.data is None else "POST", target, options.data, headers)
    response = connection.getresponse()
    shown = (_head(response) if options.include else "") + response.read().decode()
    Path(options.output).write_text(shown)
    sys.stdout.write(options.write_out.replace("%{http_code}", str(response.status)))


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-i", dest="include", action="store_true")
    parser.add_argument("-H", dest="header", action="append", default=[])
    parser.add_argument("-d", dest="data")
    parser.add_argument("-o", dest="output", default="/dev/stdout")
    parser.add_argument("-w", dest="write_out", default="")
    options = parser.parse_args()
    options.write_out = options.write_out.replace("\\n", "\n")
    return options


def _head(response: HTTPResponse) -> str:
    lines = [f"HTTP/1.1 {response.status} {response.reason}"]
    lines += [f"{name}: {value}" for name, value in response.getheaders()]
    return "\r\n".join([*lines, "", ""])


if __name__ == "__main__":
    main()
