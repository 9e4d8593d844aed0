#!/usr/bin/env python3
"""Prints the software bill of materials of the wheels: what is inside them, as CycloneDX 1.5 in JSON.

    python3 tools/sbom.py > napier.cdx.json

The libraries, their versions and the sums of their sources are those of tools/libraries.sh. SOURCE_DATE_EPOCH is the time.
"""

import datetime
import json
import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
LICENSES = {"cjson": "MIT", "pcre2": "BSD-3-Clause", "utf8proc": "MIT", "zlib": "Zlib"}


def component(name, version, license, **more):
    return {"type": "library", "name": name, "version": version, "licenses": [{"license": {"id": license}}], **more}


def libraries():
    text = (ROOT / "tools" / "libraries.sh").read_text()
    for path, name, version, sha256 in re.findall(r"^(\w/\w+/(\w+)_(\S+)\.orig\.tar\.gz) ([0-9a-f]{64})$", text, re.M):
        source = {"type": "distribution", "url": f"https://deb.debian.org/debian/pool/main/{path}"}
        source["hashes"] = [{"alg": "SHA-256", "content": sha256}]
        yield component(name, version.split("really")[-1], LICENSES[name], externalReferences=[source])


def main():
    version = re.search(r'NAPIER_VERSION_STRING "([^"]+)"', (ROOT / "include/napier/types.h").read_text())[1]
    when = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    napier = component("napier-math", version, "Apache-2.0", purl=f"pkg:pypi/napier-math@{version}")
    metadata = {"timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": napier}
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": metadata, "components": list(libraries())}
    print(json.dumps(bill, indent=2))


if __name__ == "__main__":
    main()
