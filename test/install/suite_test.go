//go:build e2e

// Package install tests the ways to install the operator that README.md and docs/helm.md describe, on an empty cluster
// with a real node. `make soak SOAK_PARTS=install` starts such a cluster.
package install

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testenv"
)

const (
	repositoryRoot = "../.."
	// image is the one that the README builds.
	image = "registry.example/yardmaster:v1"
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) {
	testenv.Main(m, "make soak SOAK_PARTS=install", func(_ context.Context, c *testenv.Cluster) (func() error, error) {
		cluster = c
		return testenv.NothingToEnd, nil
	})
}

// run runs a script from the root of the repository, as a user would who has kubectl, Helm and Docker, and returns what
// it printed.
func run(t *testing.T, script string) string {
	t.Helper()
	programs, err := filepath.Abs("programs")
	require.NoError(t, err)
	// A user stops at the first command that fails.
	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	command.Dir = repositoryRoot
	command.Env = append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "MAKEFLAGS=", "MAKELEVEL=")
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	if err := command.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, &output)
	}
	return output.String()
}

// shellBlocks returns the shell commands below a heading of a page, block by block.
func shellBlocks(t *testing.T, page, heading string) []string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repositoryRoot, page))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(content), "\n## "+heading+"\n")
	require.True(t, found, "%s has no section %s", page, heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for {
		_, after, found := strings.Cut(section, "\n```sh\n")
		if !found {
			return blocks
		}
		block, rest, _ := strings.Cut(after, "\n```\n")
		blocks, section = append(blocks, block), rest
	}
}

func exists(t *testing.T, object client.Object, ns, name string) bool {
	t.Helper()
	err := cluster.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: name}, object)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}
