package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const localClusterName = "demo"

type localCluster struct {
	kubeconfig    string
	operatorImage string
}

// Prepare implements Cluster. It builds the command localcluster, which the Makefile also uses.
func (*localCluster) Prepare(ctx context.Context) error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("the default cluster of the demo needs root on Linux; use CLUSTER=kind make demo with Docker, " +
			"or CLUSTER=current make demo with a cluster that exists")
	}
	return runMake(ctx, "localcluster")
}

// Start implements Cluster.
func (d *localCluster) Start(ctx context.Context) error {
	if err := shell.Run(ctx, localClusterTool, "up", "--brief", "--name", localClusterName); err != nil {
		return err
	}
	var err error
	d.kubeconfig, err = shell.Output(ctx, localClusterTool, "kubeconfig", "--name", localClusterName)
	return err
}

// BuildImages implements Cluster.
func (d *localCluster) BuildImages(ctx context.Context) (err error) {
	d.operatorImage, err = buildArchives(ctx)
	return err
}

// LoadImages implements Cluster.
func (d *localCluster) LoadImages(ctx context.Context) (string, error) {
	return d.operatorImage, loadArchives(ctx, localClusterName)
}

// KubeconfigPath implements Cluster.
func (d *localCluster) KubeconfigPath(context.Context) (string, error) { return d.kubeconfig, nil }

// KubectlCommand implements Cluster. An installed kubectl saves building one.
func (d *localCluster) KubectlCommand() []string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return []string{"kubectl", "--kubeconfig", d.kubeconfig}
	}
	return localKubectl(localClusterName)
}

// localKubectl returns the command that runs the kubectl of a cluster of localcluster.
func localKubectl(clusterName string) []string {
	tool, err := filepath.Abs(localClusterTool)
	if err != nil {
		tool = localClusterTool
	}
	return []string{tool, "kubectl", "--name", clusterName, "--"}
}

// Delete implements Cluster.
func (d *localCluster) Delete(ctx context.Context) error {
	if err := d.Prepare(ctx); err != nil {
		return err
	}
	return shell.Run(ctx, localClusterTool, "down", "--name", localClusterName)
}

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

const (
	localClusterTool  = "bin/localcluster"
	operatorBinary    = "bin/linux/yardmaster"
	operatorImageName = "yardmaster"
	// builtImage is the operator's image before it is named after its content.
	builtImage = operatorImageName + ":demo"
	// tagLength is the number of characters of a hash that distinguish images well enough.
	tagLength = 12
)

// archives are the images that buildArchives writes.
var archives = []string{"dist/yardmaster.tar", "dist/nats.tar", "dist/example-worker.tar", "dist/example-runner.tar"}

// exampleDockerImages are the images that buildDockerImages builds from the Dockerfile of an example.
var exampleDockerImages = map[string]string{"example-worker:v1": "examples/worker", "example-runner:v1": "examples/runner"}

func runMake(ctx context.Context, args ...string) error {
	return shell.RunQuietly(ctx, "make", append([]string{"--no-print-directory"}, args...)...)
}

// buildArchives builds the images without Docker, and returns the name of the operator's. Its tag is a hash of its
// content, so that only a changed operator is rolled out.
func buildArchives(ctx context.Context) (operatorImage string, err error) {
	if err := runMake(ctx, "image", "IMG="+builtImage); err != nil {
		return "", err
	}
	tag, err := contentHashTag(operatorBinary)
	if err != nil {
		return "", err
	}
	operatorImage = operatorImageName + ":" + tag
	if err := runMake(ctx, "image", "IMG="+operatorImage); err != nil {
		return "", err
	}
	return operatorImage, shell.RunQuietly(ctx, "hack/images")
}

// loadArchives loads the images into a cluster of localcluster.
func loadArchives(ctx context.Context, clusterName string) error {
	return shell.RunQuietly(ctx, localClusterTool, slices.Concat([]string{"load-image", "--name", clusterName}, archives)...)
}

func contentHashTag(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil))[:tagLength], nil
}

// buildDockerImages builds the images with Docker, and returns the name of the operator's. Its tag is its Docker ID.
// The image of NATS comes from its registry.
func buildDockerImages(ctx context.Context) (operatorImage string, err error) {
	if err := runMake(ctx, "docker-build", "IMG="+builtImage); err != nil {
		return "", err
	}
	id, err := shell.Output(ctx, "docker", "image", "inspect", "--format", "{{.Id}}", builtImage)
	if err != nil {
		return "", err
	}
	id = strings.TrimPrefix(id, "sha256:")
	operatorImage = operatorImageName + ":" + id[:min(tagLength, len(id))]
	if err := shell.RunQuietly(ctx, "docker", "tag", builtImage, operatorImage); err != nil {
		return "", err
	}
	for image, directory := range exampleDockerImages {
		if err := shell.RunQuietly(ctx, "docker", "build", "--tag", image, "--file", directory+"/Dockerfile", "."); err != nil {
			return "", err
		}
	}
	return operatorImage, nil
}

func loadDockerImages(operatorImage string, load func(image string) error) error {
	images := []string{operatorImage}
	for image := range exampleDockerImages {
		images = append(images, image)
	}
	for _, image := range images {
		if err := load(image); err != nil {
			return err
		}
	}
	return nil
}
