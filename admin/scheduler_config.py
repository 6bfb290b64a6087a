"""Renders kube-scheduler's configuration with the extender's entries. Pure."""

import base64
from collections.abc import Mapping
from typing import NamedTuple

_TEXT = """\
# kube-scheduler's configuration with the two entries of EDL's extender: merge it into yours, and restart
# kube-scheduler with --config.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
# Else kube-scheduler on a large cluster sends the extender only a sample of the nodes.
percentageOfNodesToScore: 100
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args:
      # All nodes with victims are candidates, so that the choice among them is EDL's.
      minCandidateNodesPercentage: 100
extenders:
# Asked only for pods that request edl.training/trainer, which EDL's webhook adds: services never wait for it.
- urlPrefix: {url}
  filterVerb: filter
  prioritizeVerb: prioritize
  # Above the sum of all in-tree scores (1 200): packing decides where trainers go.
  weight: 13
  enableHTTPS: true
{tls}
  httpTimeout: 1s
  nodeCacheCapable: true
  # With EDL down, kube-scheduler goes on without it.
  ignorable: true
  managedResources:
  - name: edl.training/trainer
    ignoredByScheduler: true
# Asked once for each preemption; it only chooses among victims that are training pods.
- urlPrefix: {url}
  preemptVerb: preempt
  enableHTTPS: true
{tls}
  httpTimeout: 1s
  nodeCacheCapable: true
  ignorable: true
"""


class ClientFiles(NamedTuple):
    """PEM files that kube-scheduler uses as a client."""

    ca: bytes
    cert: bytes
    key: bytes


def render(host: str, server_name: str, files: ClientFiles | None, folder: str) -> str:
    """Renders the configuration.

    Args:
        host: Name or address at which kube-scheduler reaches the extender.
        server_name: A name in the extender's certificate. It allows `host` to be an address that the
            certificate does not contain.
        files: Files to embed in the configuration; if None, it refers to them by path instead.
        folder: Folder of the files on kube-scheduler's machine.
    """
    tls: Mapping[str, str]
    if files is None:
        tls = {
            "caFile": f"{folder}/ca.crt",
            "certFile": f"{folder}/client.crt",
            "keyFile": f"{folder}/client.key",
        }
    else:
        tls = {
            "caData": base64.b64encode(files.ca).decode(),
            "certData": base64.b64encode(files.cert).decode(),
            "keyData": base64.b64encode(files.key).decode(),
        }
    lines = ["  tlsConfig:", "    # The name in the certificate, whatever the address is."]
    lines += [f"    {key}: {value}" for key, value in {"serverName": server_name, **tls}.items()]
    address = f"[{host}]" if ":" in host else host
    return _TEXT.format(url=f"https://{address}:8443", tls="\n".join(lines))
