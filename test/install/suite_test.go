//go:build e2e

// Package install tests the ways to install the operator that README.md and docs/helm.md describe, on an empty cluster
// with a real node. `make test-install` starts such a cluster.
package install

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
)

const (
	repositoryRoot = "../.."
	// image is the one that the README builds.
	image = "registry.example/yardmaster:v1"
	// waitTimeout is how long a test waits for the cluster.
	waitTimeout = 3 * time.Minute
)

var cluster client.Client

func TestMain(m *testing.M) {
	if os.Getenv("KUBECONFIG") == "" {
		fmt.Println("KUBECONFIG is not set, so there is no cluster to test against: use make test-install")
		return
	}
	if err := connect(); err != nil {
		fmt.Fprintln(os.Stderr, "connecting to the cluster:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	cluster, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// run runs a script from the root of the repository, as a user would who has kubectl, Helm and Docker, and returns what
// it printed.
func run(t *testing.T, script string) string {
	t.Helper()
	programs, err := filepath.Abs("testdata/bin")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(content), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %s", page, heading)
	}
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

// eventually waits until the condition holds. Errors of a condition that reads the cluster end the test.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v\n%s", what, err, run(t, "kubectl get pods,sj,jobs -A; kubectl get events -A | tail -40"))
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
