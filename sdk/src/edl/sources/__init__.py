"""Sources of records: arrays, CSV files, record files, plain files, or a function."""

from edl.sources.arrays import from_arrays
from edl.sources.base import Dataset, Source
from edl.sources.csv_files import from_csv
from edl.sources.files import from_files
from edl.sources.function import from_function
from edl.sources.recordfiles import from_records

__all__ = [
    "Dataset",
    "Source",
    "from_arrays",
    "from_csv",
    "from_files",
    "from_function",
    "from_records",
]
