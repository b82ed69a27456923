"""Loads what a server may need, in the process from which ``forks`` forks servers; imported nowhere else."""

import gc
import importlib
import pkgutil

import tidelog_server
from tidelog_cli.grpc_stack import use_polling_stack

# Before gRPC is loaded. The tests' own process may use another stack.
use_polling_stack()

for _module in pkgutil.walk_packages(tidelog_server.__path__, "tidelog_server."):
    # The server needs one module of the command line; others load Spark.
    if not _module.name.startswith("tidelog_server.commands.") and not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)
importlib.import_module("tidelog_server.commands.serve")
# A collection in a child would copy every page that has objects: half of the time of a start.
gc.freeze()
