"""The documentation as a site, from the headers, the guides and the modules' docstrings: no warning, and no link to nothing."""
import os
import tempfile

from support import ROOT, python


def test_site_has_no_warning_and_no_dead_link():
    with tempfile.TemporaryDirectory() as out:
        built = python(os.path.join(ROOT, "docs", "site", "build.py"), out)
        assert built.returncode == 0, built.stdout + built.stderr
        return built.stdout.rpartition(":")[0]
