// Package cluster brings up the cluster that the demo runs on.
package cluster

import (
	"context"
	"fmt"
)

// Cluster is where the demo runs.
type Cluster interface {
	// Start starts the cluster, unless it is up, and shows the progress.
	Start(ctx context.Context) error
	// LoadOperatorImage builds the operator's image, loads it into the cluster and returns its name,
	// which is another one when the image is.
	LoadOperatorImage(ctx context.Context) (string, error)
	// LoadExampleImages builds the images that queues and sessions are tried with, and loads them into the cluster.
	LoadExampleImages(ctx context.Context) error
	// KubeconfigPath is the path of the administrator's kubeconfig.
	KubeconfigPath(ctx context.Context) (string, error)
	// KubectlCommand is the command that runs kubectl as the administrator.
	KubectlCommand() []string
	// Delete removes the cluster.
	Delete(ctx context.Context) error
}

// The kinds of cluster.
const (
	typeLocal = "localcluster"
	typeKind  = "kind"
)

// New is a cluster of the kind that the user chose: localcluster or kind.
func New(kind string) (Cluster, error) {
	switch kind {
	case "", typeLocal:
		return localCluster{}, nil
	case typeKind:
		return kindCluster{}, nil
	default:
		return nil, fmt.Errorf("CLUSTER is %q: it can be %s, which needs Linux and root, or %s, which needs Docker", kind, typeLocal, typeKind)
	}
}
