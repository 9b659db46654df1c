package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const (
	kindClusterName = "yardmaster-demo"
	// demoKubeconfig is a kubeconfig for clusters that have none of their own.
	demoKubeconfig = "dist/demo/kubeconfig"
)

// kindCluster is a cluster of kind, whose nodes are Docker containers.
type kindCluster struct {
	operatorImage string
}

// Start implements Cluster.
func (d *kindCluster) Start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(demoKubeconfig), 0o750); err != nil {
		return err
	}
	found, err := d.clusterExists(ctx)
	if err != nil {
		return err
	}
	if found {
		return shell.Run(ctx, typeKind, "export", "kubeconfig", "--name", kindClusterName, "--kubeconfig", demoKubeconfig)
	}
	return shell.Run(ctx, typeKind, "create", "cluster", "--name", kindClusterName, "--kubeconfig", demoKubeconfig, "--wait", "3m")
}

// Prepare implements Cluster. It returns an error for each missing program.
func (*kindCluster) Prepare(ctx context.Context) error {
	var missing []error
	for _, need := range []struct{ program, from string }{
		{"docker", "https://docs.docker.com/engine/install"},
		{typeKind, "https://kind.sigs.k8s.io"},
		{"kubectl", "https://kubernetes.io/docs/tasks/tools"},
	} {
		if _, err := exec.LookPath(need.program); err != nil {
			missing = append(missing, fmt.Errorf("CLUSTER=kind needs %s, which is not in the PATH: see %s", need.program, need.from))
		}
	}
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	if err := shell.RunQuietly(ctx, "docker", "info"); err != nil {
		return fmt.Errorf("CLUSTER=kind needs a running Docker: %w", err)
	}
	return nil
}

func (*kindCluster) clusterExists(ctx context.Context) (bool, error) {
	clusters, err := shell.Output(ctx, typeKind, "get", "clusters")
	return slices.Contains(strings.Fields(clusters), kindClusterName), err
}

// BuildImages implements Cluster.
func (d *kindCluster) BuildImages(ctx context.Context) (err error) {
	d.operatorImage, err = buildDockerImages(ctx)
	return err
}

// LoadImages implements Cluster.
func (d *kindCluster) LoadImages(ctx context.Context) (string, error) {
	return d.operatorImage, loadDockerImages(d.operatorImage, func(image string) error {
		return shell.RunQuietly(ctx, typeKind, "load", "docker-image", image, "--name", kindClusterName)
	})
}

// KubeconfigPath implements Cluster.
func (*kindCluster) KubeconfigPath(context.Context) (string, error) {
	return filepath.Abs(demoKubeconfig)
}

// KubectlCommand implements Cluster.
func (*kindCluster) KubectlCommand() []string {
	kubeconfig, err := filepath.Abs(demoKubeconfig)
	if err != nil {
		kubeconfig = demoKubeconfig
	}
	return []string{"kubectl", "--kubeconfig", kubeconfig}
}

// Delete implements Cluster.
func (*kindCluster) Delete(ctx context.Context) error {
	return shell.Run(ctx, typeKind, "delete", "cluster", "--name", kindClusterName)
}
