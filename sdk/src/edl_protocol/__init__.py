"""The protocols between trainers and a job's servers, as both sides use them; decision 0076.

`edl-sdk` and `edl-control-plane` both contain this package. It needs Python 3.9 and the standard
library; `frames` needs numpy.
"""
