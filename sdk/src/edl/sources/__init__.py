"""Where records come from: arrays, CSV, record files, plain files, or any function."""

from edl.sources.arrays import from_arrays
from edl.sources.base import Dataset, Source
from edl.sources.files import from_files
from edl.sources.function import from_function
from edl.sources.recordfiles import from_records
from edl.sources.tables import from_csv

__all__ = [
    "Dataset",
    "Source",
    "from_arrays",
    "from_csv",
    "from_files",
    "from_function",
    "from_records",
]
