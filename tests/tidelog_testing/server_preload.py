"""Loads what a server may need, in the process that ``server_forks`` forks servers from; imported nowhere else."""

import importlib
import pkgutil

import tidelog_server
from tidelog_server.cli.grpc_stack import use_polling_stack

# Before gRPC is loaded; which one the tests' own process uses is none of our business.
use_polling_stack()

for _module in pkgutil.walk_packages(tidelog_server.__path__, "tidelog_server."):
    # Of the command line, the server has one module; others load Spark.
    if not _module.name.startswith("tidelog_server.cli.") and not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)
importlib.import_module("tidelog_server.cli.serve")
