// Command crds prints the CustomResourceDefinitions of Karpenter and its kwok provider as YAML, each with its own "---".
package main

import (
	"os"

	kwok "sigs.k8s.io/karpenter/kwok/apis"
	karpenter "sigs.k8s.io/karpenter/pkg/apis"
)

func main() {
	for _, document := range [][]byte{
		karpenter.NodePoolCRD,
		karpenter.NodeClaimCRD,
		karpenter.NodeOverlayCRD,
		karpenter.CapacityBufferCRD,
		kwok.KWOKNodeClassCRD,
	} {
		os.Stdout.Write(document)
		os.Stdout.WriteString("\n")
	}
}
