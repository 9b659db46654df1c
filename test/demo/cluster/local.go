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
	localName   = "demo"
	localTool   = "bin/localcluster"
	localBinary = "bin/linux/yardmaster"
	imageName   = "yardmaster"
)

// local is a cluster of package localcluster.
type local struct{}

// Up implements Cluster.
func (local) Up(ctx context.Context) error {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return errors.New("the cluster of the demo needs root on Linux; where Docker runs, CLUSTER=kind make demo uses kind")
	}
	if err := build(ctx); err != nil {
		return err
	}
	return shell.Run(ctx, localTool, "up", "--name", localName)
}

// build builds the program that the Makefile's targets use too.
func build(ctx context.Context) error {
	return shell.Quiet(ctx, "make", "--no-print-directory", "localcluster")
}

// Image implements Cluster. Its tag is what is in it, so that a changed operator is
// rolled out and an unchanged one is left running.
func (local) Image(ctx context.Context) (string, error) {
	makeImage := func(image string) error {
		return shell.Quiet(ctx, "make", "--no-print-directory", "image", "IMG="+image)
	}
	if err := makeImage(imageName + ":demo"); err != nil {
		return "", err
	}
	tag, err := contentTag(localBinary)
	if err != nil {
		return "", err
	}
	image := imageName + ":" + tag
	if err := makeImage(image); err != nil {
		return "", err
	}
	return image, shell.Quiet(ctx, localTool, "load-image", "--name", localName, filepath.Join("dist", "yardmaster.tar"))
}

// Tryout implements Cluster.
func (local) Tryout(ctx context.Context) error {
	if err := shell.Quiet(ctx, "hack/images"); err != nil {
		return err
	}
	return shell.Quiet(ctx, localTool, "load-image", "--name", localName, "dist/nats.tar", "dist/example-worker.tar", "dist/example-runner.tar")
}

func contentTag(file string) (string, error) {
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

// Kubeconfig implements Cluster.
func (local) Kubeconfig(ctx context.Context) (string, error) {
	return shell.Output(ctx, localTool, "kubeconfig", "--name", localName)
}

// Kubectl implements Cluster.
func (local) Kubectl() []string {
	tool, err := filepath.Abs(localTool)
	if err != nil {
		tool = localTool
	}
	return []string{tool, "kubectl", "--name", localName, "--"}
}

// Down implements Cluster.
func (local) Down(ctx context.Context) error {
	if err := build(ctx); err != nil {
		return err
	}
	return shell.Run(ctx, localTool, "down", "--name", localName)
}
