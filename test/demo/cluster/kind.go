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
	kindKubeconfig  = "dist/demo/kubeconfig"
)

// kindCluster is a cluster of kind, whose nodes are Docker containers.
type kindCluster struct{}

// Start implements Cluster.
func (d kindCluster) Start(ctx context.Context) error {
	if err := d.checkPrerequisites(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(kindKubeconfig), 0o750); err != nil {
		return err
	}
	found, err := d.clusterExists(ctx)
	if err != nil {
		return err
	}
	if found {
		return shell.Run(ctx, typeKind, "export", "kubeconfig", "--name", kindClusterName, "--kubeconfig", kindKubeconfig)
	}
	return shell.Run(ctx, typeKind, "create", "cluster", "--name", kindClusterName, "--kubeconfig", kindKubeconfig, "--wait", "3m")
}

// checkPrerequisites returns an error for each missing program.
func (kindCluster) checkPrerequisites(ctx context.Context) error {
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

func (kindCluster) clusterExists(ctx context.Context) (bool, error) {
	clusters, err := shell.Output(ctx, typeKind, "get", "clusters")
	return slices.Contains(strings.Fields(clusters), kindClusterName), err
}

// LoadOperatorImage implements Cluster. The image's tag is its Docker ID.
func (kindCluster) LoadOperatorImage(ctx context.Context) (string, error) {
	const built = operatorImageName + ":demo"
	if err := shell.RunQuietly(ctx, "make", "--no-print-directory", "docker-build", "IMG="+built); err != nil {
		return "", err
	}
	id, err := shell.Output(ctx, "docker", "image", "inspect", "--format", "{{.Id}}", built)
	if err != nil {
		return "", err
	}
	const chars = 12
	id = strings.TrimPrefix(id, "sha256:")
	image := operatorImageName + ":" + id[:min(chars, len(id))]
	if err := shell.RunQuietly(ctx, "docker", "tag", built, image); err != nil {
		return "", err
	}
	return image, shell.RunQuietly(ctx, typeKind, "load", "docker-image", image, "--name", kindClusterName)
}

// LoadExampleImages implements Cluster. The image of NATS comes from its registry.
func (kindCluster) LoadExampleImages(ctx context.Context) error {
	for _, name := range []string{"worker", "runner"} {
		image := "example-" + name + ":v1"
		if err := shell.RunQuietly(ctx, "docker", "build", "--tag", image, "--file", "examples/"+name+"/Dockerfile", "."); err != nil {
			return err
		}
		if err := shell.RunQuietly(ctx, typeKind, "load", "docker-image", image, "--name", kindClusterName); err != nil {
			return err
		}
	}
	return nil
}

// KubeconfigPath implements Cluster.
func (kindCluster) KubeconfigPath(context.Context) (string, error) {
	return filepath.Abs(kindKubeconfig)
}

// KubectlCommand implements Cluster.
func (kindCluster) KubectlCommand() []string {
	kubeconfig, err := filepath.Abs(kindKubeconfig)
	if err != nil {
		kubeconfig = kindKubeconfig
	}
	return []string{"kubectl", "--kubeconfig", kubeconfig}
}

// Delete implements Cluster.
func (kindCluster) Delete(ctx context.Context) error {
	return shell.Run(ctx, typeKind, "delete", "cluster", "--name", kindClusterName)
}
