// Package cluster brings up the cluster that the demo runs on.
package cluster

import (
	"context"
	"fmt"
)

// Cluster is where the demo runs.
type Cluster interface {
	// Up starts the cluster, unless it is up, and shows the progress.
	Up(ctx context.Context) error
	// Image builds the operator's image, loads it into the cluster and returns its name,
	// which is another one when the image is.
	Image(ctx context.Context) (string, error)
	// Tryout builds the images that queues and sessions are tried with, and loads them into the cluster.
	Tryout(ctx context.Context) error
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig(ctx context.Context) (string, error)
	// Kubectl is the command that runs kubectl as the administrator.
	Kubectl() []string
	// Down removes the cluster.
	Down(ctx context.Context) error
}

// The kinds of cluster.
const (
	kindLocal = "localcluster"
	kindKind  = "kind"
)

// New is a cluster of the kind that the user chose: localcluster or kind.
func New(kind string) (Cluster, error) {
	switch kind {
	case "", kindLocal:
		return local{}, nil
	case kindKind:
		return docker{}, nil
	default:
		return nil, fmt.Errorf("CLUSTER is %q: it can be %s, which needs Linux and root, or %s, which needs Docker", kind, kindLocal, kindKind)
	}
}
