"""Loss and growth on NCCL: several ranks on one card, as processes on different NCCL hosts."""
