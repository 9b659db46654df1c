// Package harness contains what the benchmarks share: a control plane, a release build of the
// operator, brokers, and measurements of processes.
package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	clusterName        = "bench"
	localclusterBinary = "bin/localcluster"
)

// Cluster is the control plane on which a benchmark runs.
type Cluster struct{ *testenv.Cluster }

// OpenCluster connects to the control plane of a kubeconfig and installs the
// CustomResourceDefinitions. If kubeconfig is empty, it starts a local control plane. Call the
// returned function at the end.
func OpenCluster(ctx context.Context, kubeconfig string) (*Cluster, func(), error) {
	if kubeconfig == "" {
		c, err := StartCluster(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c, func() { c.StopControlPlane(ctx) }, nil
	}
	c, err := ConnectToCluster(kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	return c, func() {}, c.InstallCRDs(ctx)
}

// StartCluster starts a local control plane and installs the CustomResourceDefinitions.
func StartCluster(ctx context.Context) (*Cluster, error) {
	if err := RunCommand(ctx, localclusterBinary, "up", "--mode", "control-plane", "--name", clusterName); err != nil {
		return nil, err
	}
	kubeconfig, err := exec.CommandContext(ctx, localclusterBinary, "kubeconfig", "--name", clusterName).Output()
	if err != nil {
		return nil, fmt.Errorf("getting the kubeconfig: %w", err)
	}
	c, err := ConnectToCluster(strings.TrimSpace(string(kubeconfig)))
	if err != nil {
		return nil, err
	}
	return c, c.InstallCRDs(ctx)
}

// ConnectToCluster connects to a running cluster.
func ConnectToCluster(kubeconfig string) (*Cluster, error) {
	c, err := testenv.Connect(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &Cluster{c}, nil
}

// StopControlPlane stops the local control plane, even if ctx has ended.
func (*Cluster) StopControlPlane(ctx context.Context) {
	if err := RunCommand(context.WithoutCancel(ctx), localclusterBinary, "down", "--name", clusterName); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}
