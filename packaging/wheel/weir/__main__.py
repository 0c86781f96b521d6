# SPDX-License-Identifier: Apache-2.0 OR MIT
"""`python -m weir`: the command weir."""

import sys

from ._tool import replace

if __name__ == "__main__":
    replace(sys.argv[1:])
