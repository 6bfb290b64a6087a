"""Commands for cluster admins: check a cluster before, during and after an installation of EDL."""
