"""As much of curl as the documentation uses, for machines that have none."""

import argparse
import sys
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit


def main() -> None:
    asked = _arguments()
    parts = urlsplit(asked.url if "://" in asked.url else f"http://{asked.url}")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = dict(header.split(": ", 1) for header in asked.header)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    connection.request("GET" if asked.data is None else "POST", target, asked.data, headers)
    response = connection.getresponse()
    shown = (_head(response) if asked.include else "") + response.read().decode()
    Path(asked.output).write_text(shown)
    sys.stdout.write(asked.write_out.replace("%{http_code}", str(response.status)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-i", dest="include", action="store_true")
    parser.add_argument("-H", dest="header", action="append", default=[])
    parser.add_argument("-d", dest="data")
    parser.add_argument("-o", dest="output", default="/dev/stdout")
    parser.add_argument("-w", dest="write_out", default="")
    found = parser.parse_args()
    found.write_out = found.write_out.replace("\\n", "\n")
    return found


def _head(response: HTTPResponse) -> str:
    lines = [f"HTTP/1.1 {response.status} {response.reason}"]
    lines += [f"{name}: {value}" for name, value in response.getheaders()]
    return "\r\n".join([*lines, "", ""])


if __name__ == "__main__":
    main()
