// Package cluster starts the cluster for the demo.
package cluster

import (
	"context"
	"fmt"
)

// Cluster is the cluster that the demo uses.
type Cluster interface {
	// Start starts the cluster, unless it runs, and prints its progress.
	Start(ctx context.Context) error
	// LoadOperatorImage builds the operator's image, loads it into the cluster and returns its
	// name. A changed image has a different name.
	LoadOperatorImage(ctx context.Context) (string, error)
	// LoadExampleImages builds the images of the examples for queues and sessions and loads them into
	// the cluster.
	LoadExampleImages(ctx context.Context) error
	// KubeconfigPath returns the path of the administrator's kubeconfig.
	KubeconfigPath(ctx context.Context) (string, error)
	// KubectlCommand returns the command that runs kubectl as the administrator.
	KubectlCommand() []string
	// Delete deletes the cluster.
	Delete(ctx context.Context) error
}

// The types of clusters.
const (
	typeLocal = "localcluster"
	typeKind  = "kind"
)

// New returns a cluster of the given type: localcluster (the default) or kind.
func New(clusterType string) (Cluster, error) {
	switch clusterType {
	case "", typeLocal:
		return localCluster{}, nil
	case typeKind:
		return kindCluster{}, nil
	default:
		return nil, fmt.Errorf("invalid CLUSTER %q: must be %s (needs Linux and root) or %s (needs Docker)", clusterType, typeLocal, typeKind)
	}
}
