package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/yardmaster/yardmaster/test/demo/shell"
)

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
