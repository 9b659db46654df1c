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
	kindName       = "yardmaster-demo"
	kindKubeconfig = "dist/demo/kubeconfig"
)

// docker is a cluster of kind, whose nodes are Docker's containers.
type docker struct{}

// Up implements Cluster.
func (d docker) Up(ctx context.Context) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(kindKubeconfig), 0o750); err != nil {
		return err
	}
	there, err := d.exists(ctx)
	if err != nil {
		return err
	}
	if there {
		return shell.Run(ctx, kindKind, "export", "kubeconfig", "--name", kindName, "--kubeconfig", kindKubeconfig)
	}
	return shell.Run(ctx, kindKind, "create", "cluster", "--name", kindName, "--kubeconfig", kindKubeconfig, "--wait", "3m")
}

// check says all that is missing at once.
func (docker) check(ctx context.Context) error {
	var missing []error
	for _, need := range []struct{ program, from string }{
		{"docker", "https://docs.docker.com/engine/install"},
		{kindKind, "https://kind.sigs.k8s.io"},
		{"kubectl", "https://kubernetes.io/docs/tasks/tools"},
	} {
		if _, err := exec.LookPath(need.program); err != nil {
			missing = append(missing, fmt.Errorf("CLUSTER=kind needs %s, which is not on the path: see %s", need.program, need.from))
		}
	}
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	if err := shell.Quiet(ctx, "docker", "info"); err != nil {
		return fmt.Errorf("CLUSTER=kind needs a running Docker: %w", err)
	}
	return nil
}

func (docker) exists(ctx context.Context) (bool, error) {
	clusters, err := shell.Output(ctx, kindKind, "get", "clusters")
	return slices.Contains(strings.Fields(clusters), kindName), err
}

// Image implements Cluster. Its tag is Docker's own identity of it.
func (docker) Image(ctx context.Context) (string, error) {
	const built = imageName + ":demo"
	if err := shell.Quiet(ctx, "make", "--no-print-directory", "docker-build", "IMG="+built); err != nil {
		return "", err
	}
	id, err := shell.Output(ctx, "docker", "image", "inspect", "--format", "{{.Id}}", built)
	if err != nil {
		return "", err
	}
	const chars = 12
	id = strings.TrimPrefix(id, "sha256:")
	image := imageName + ":" + id[:min(chars, len(id))]
	if err := shell.Quiet(ctx, "docker", "tag", built, image); err != nil {
		return "", err
	}
	return image, shell.Quiet(ctx, kindKind, "load", "docker-image", image, "--name", kindName)
}

// Tryout implements Cluster. The image of NATS comes from its registry.
func (docker) Tryout(ctx context.Context) error {
	for _, name := range []string{"worker", "runner"} {
		image := "example-" + name + ":v1"
		if err := shell.Quiet(ctx, "docker", "build", "--tag", image, "--file", "examples/"+name+"/Dockerfile", "."); err != nil {
			return err
		}
		if err := shell.Quiet(ctx, kindKind, "load", "docker-image", image, "--name", kindName); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig implements Cluster.
func (docker) Kubeconfig(context.Context) (string, error) { return filepath.Abs(kindKubeconfig) }

// Kubectl implements Cluster.
func (docker) Kubectl() []string {
	kubeconfig, err := filepath.Abs(kindKubeconfig)
	if err != nil {
		kubeconfig = kindKubeconfig
	}
	return []string{"kubectl", "--kubeconfig", kubeconfig}
}

// Down implements Cluster.
func (docker) Down(ctx context.Context) error {
	return shell.Run(ctx, kindKind, "delete", "cluster", "--name", kindName)
}
