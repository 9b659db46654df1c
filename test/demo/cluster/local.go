package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

const (
	localClusterName  = "demo"
	localClusterTool  = "bin/localcluster"
	operatorBinary    = "bin/linux/yardmaster"
	operatorImageName = "yardmaster"
)

// localCluster is a cluster of the command localcluster.
type localCluster struct{}

// Start implements Cluster.
func (localCluster) Start(ctx context.Context) error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("the default cluster of the demo needs root on Linux; with Docker, use CLUSTER=kind make demo")
	}
	if err := buildLocalTool(ctx); err != nil {
		return err
	}
	return shell.Run(ctx, localClusterTool, "up", "--name", localClusterName)
}

// buildLocalTool builds the command localcluster, which the Makefile also uses.
func buildLocalTool(ctx context.Context) error {
	return shell.RunQuietly(ctx, "make", "--no-print-directory", "localcluster")
}

// LoadOperatorImage implements Cluster. The image's tag is a hash of its content, so that
// only a changed operator is rolled out.
func (localCluster) LoadOperatorImage(ctx context.Context) (string, error) {
	buildImage := func(image string) error {
		return shell.RunQuietly(ctx, "make", "--no-print-directory", "image", "IMG="+image)
	}
	if err := buildImage(operatorImageName + ":demo"); err != nil {
		return "", err
	}
	tag, err := contentHashTag(operatorBinary)
	if err != nil {
		return "", err
	}
	image := operatorImageName + ":" + tag
	if err := buildImage(image); err != nil {
		return "", err
	}
	return image, shell.RunQuietly(ctx, localClusterTool, "load-image", "--name", localClusterName, filepath.Join("dist", "yardmaster.tar"))
}

// LoadExampleImages implements Cluster.
func (localCluster) LoadExampleImages(ctx context.Context) error {
	if err := shell.RunQuietly(ctx, "hack/images"); err != nil {
		return err
	}
	return shell.RunQuietly(ctx, localClusterTool, "load-image", "--name", localClusterName, "dist/nats.tar", "dist/example-worker.tar", "dist/example-runner.tar")
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
	const chars = 12
	return hex.EncodeToString(hash.Sum(nil))[:chars], nil
}

// KubeconfigPath implements Cluster.
func (localCluster) KubeconfigPath(ctx context.Context) (string, error) {
	return shell.Output(ctx, localClusterTool, "kubeconfig", "--name", localClusterName)
}

// KubectlCommand implements Cluster.
func (localCluster) KubectlCommand() []string {
	tool, err := filepath.Abs(localClusterTool)
	if err != nil {
		tool = localClusterTool
	}
	return []string{tool, "kubectl", "--name", localClusterName, "--"}
}

// Delete implements Cluster.
func (localCluster) Delete(ctx context.Context) error {
	if err := buildLocalTool(ctx); err != nil {
		return err
	}
	return shell.Run(ctx, localClusterTool, "down", "--name", localClusterName)
}
