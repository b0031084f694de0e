"""What ``gpufeed info`` says of a GPU."""

from __future__ import annotations

import re

import pytest
from conftest import HAS_CUDA_DEVICE

from gpufeed import cli

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CUDA_DEVICE, reason="no CUDA device on this machine"),
]


def test_info_names_the_device_and_measures_its_copies(capsys):
    assert cli.main(["info"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"CUDA driver \d+\.\d+, runtime \d+\.\d+", said)
    (pinned, pageable) = re.search(
        r"cuda:0: .+ compute capability \d+\.\d+, .+ page-locked memory ([\d.]+) GB/s, "
        r"from pageable ([\d.]+) GB/s; isolated feeds are (?:sent from shared memory|copied, as )",
        said,
    ).groups()
    assert float(pinned) > 0.5 * float(pageable) > 0
