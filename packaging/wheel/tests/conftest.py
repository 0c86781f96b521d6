# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Fixtures of the tests of the installed package. `../test` runs them."""

import os
import pathlib
import shutil
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "lab/sample/sample.pcap"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """A working folder with the sample capture, and a folder for temporary files, which has to be empty afterwards."""
    work, temporary = tmp_path / "work", tmp_path / "temporary"
    work.mkdir()
    temporary.mkdir()
    shutil.copy(SAMPLE, work / "traffic.pcap")
    monkeypatch.chdir(work)
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield work
    assert os.listdir(temporary) == []


@pytest.fixture
def sample():
    """The sample capture in the working folder."""
    return "traffic.pcap"
