// Package cluster starts the cluster for the demo, or finds one that exists.
package cluster

import (
	"context"
	"fmt"
)

// MarkerAnnotation is an annotation of the namespaces of the operator and of the broker that the demo created.
// In a cluster that the demo did not create, it does not change namespaces of others.
const MarkerAnnotation = "demo.yardmaster.dev/created"

// The namespaces of the examples, of the operator and of the broker.
const (
	SequencesNamespace = "yardmaster-demo"
	StaleNamespace     = "yardmaster-demo-stale"
	OrdersNamespace    = "yardmaster-demo-orders"
	SessionsNamespace  = "yardmaster-demo-sessions"
	OperatorNamespace  = "yardmaster-system"
	BrokerNamespace    = "nats"
)

// Cluster is the cluster that the demo uses.
type Cluster interface {
	// Prepare checks what is needed, and builds what the other methods need.
	Prepare(ctx context.Context) error
	// Start starts the cluster, unless it runs, and prints its progress.
	Start(ctx context.Context) error
	// BuildImages builds the images of the operator and of the examples. It needs no running cluster.
	BuildImages(ctx context.Context) error
	// LoadImages loads the images into the cluster, and returns the name of the operator's. A changed image has a different name.
	LoadImages(ctx context.Context) (operatorImage string, err error)
	// KubeconfigPath returns the path of the administrator's kubeconfig.
	KubeconfigPath(ctx context.Context) (string, error)
	// KubectlCommand returns the command that runs kubectl as the administrator. The cluster must have been started.
	KubectlCommand() []string
	// Delete deletes the cluster, or what the demo created in a cluster that it did not create.
	Delete(ctx context.Context) error
}

// The types of clusters.
const (
	typeLocal   = "localcluster"
	typeKind    = "kind"
	typeCurrent = "current"
)

// New returns a cluster of the given type: localcluster (the default), kind, or current for the one of the current kubeconfig.
func New(clusterType string) (Cluster, error) {
	switch clusterType {
	case "", typeLocal:
		return &localCluster{}, nil
	case typeKind:
		return &kindCluster{}, nil
	case typeCurrent:
		return &currentCluster{}, nil
	default:
		return nil, fmt.Errorf("invalid CLUSTER %q: must be %s (needs Linux and root), %s (needs Docker) or %s (the cluster of your kubeconfig)",
			clusterType, typeLocal, typeKind, typeCurrent)
	}
}
