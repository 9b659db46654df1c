//go:build e2e

// Package install tests the ways to install the operator that README.md and docs/helm.md describe, on an empty cluster
// with a real node. `make soak SOAK_PARTS=install` starts such a cluster.
package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/yardmaster/yardmaster/api/v1alpha1"
	"github.com/yardmaster/yardmaster/test/poll"
	"github.com/yardmaster/yardmaster/test/require"
	"github.com/yardmaster/yardmaster/test/testbuilder"
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

// run runs a script from the root of the repository, as a user would who has kubectl, Helm and Docker, and returns what it printed.
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

// wantSequence checks that the operator runs sequences in the namespace, and that its webhook refuses wrong ones there.
func wantSequence(t *testing.T, ns string) {
	t.Helper()
	// The API server learns a moment after the webhook's configuration how to reach it.
	poll.Until(t, "the webhook in "+ns, func() bool { return webhookServes(t, ns) })
	completeSequence(t, ns)
}

// completeSequence checks that the operator runs sequences in the namespace.
func completeSequence(t *testing.T, ns string) {
	t.Helper()
	sj := testbuilder.SequentialJob("hello", "").Step("hello").Step("goodbye").Obj()
	sj.Namespace, sj.Name, sj.GenerateName = ns, "", "hello-"
	for i := range sj.Spec.Containers {
		sj.Spec.Containers[i].Image, sj.Spec.Containers[i].Command = "busybox:1.37", []string{"true"}
	}
	require.NoError(t, cluster.Create(t.Context(), sj))
	waitUntilCompleted(t, sj)
}

func waitUntilCompleted(t *testing.T, sj *v1alpha1.SequentialJob) {
	t.Helper()
	poll.Until(t, sj.Name+" in "+sj.Namespace+" to complete", func() bool {
		require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(sj), sj))
		require.True(t, !meta.IsStatusConditionTrue(sj.Status.Conditions, v1alpha1.ConditionFailed), "it failed: %+v", sj.Status)
		return sj.Status.Phase == v1alpha1.PhaseCompleted
	})
}

// webhookServes returns whether the webhook refuses a sequence that only it can refuse, because CEL can't express why.
func webhookServes(t *testing.T, ns string) bool {
	t.Helper()
	sj := testbuilder.SequentialJob("wrong", "").Step("a", testbuilder.StepImage("")).Obj()
	sj.Namespace = ns
	err := cluster.Create(t.Context(), sj, client.DryRunAll)
	var status interface{ Status() metav1.Status }
	return errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonInvalid
}

// workManifest is a Schedule, and a WorkerPool of the Queue jobs.
const workManifest = `
apiVersion: yardmaster.dev/v1alpha1
kind: Schedule
metadata: {name: each-minute}
spec:
  schedule: "* * * * *"
  sequentialJob:
    spec: {containers: [{name: only, image: "busybox:1.37", command: ["true"]}]}
---
apiVersion: yardmaster.dev/v1alpha1
kind: WorkerPool
metadata: {name: workers}
spec:
  queues: [{name: jobs}]
  replicas: %d
  drain: {mode: Signal}
  template:
    spec:
      containers: [{name: worker, image: "busybox:1.37", command: [sh, -c, "trap 'exit 0' TERM; sleep 86400 & wait"], securityContext: {runAsUser: 1000}}]
`

// createWork creates a Queue on the broker of the tests, a Schedule and a WorkerPool.
func createWork(t *testing.T, ns string, replicas int) {
	t.Helper()
	run(t, "kubectl -n "+ns+" create secret generic broker --from-literal=url=nats://nats.nats:4222 && kubectl -n "+ns+" label secret broker yardmaster.dev/broker=true")
	createQueue(t, ns)
	apply(t, ns, fmt.Sprintf(workManifest, replicas))
}

func createQueue(t *testing.T, ns string) {
	t.Helper()
	apply(t, ns, `
apiVersion: yardmaster.dev/v1alpha1
kind: Queue
metadata: {name: jobs}
spec: {broker: {engine: NATS, urlSecretRef: {name: broker}}}
`)
}

func apply(t *testing.T, ns, manifest string) {
	t.Helper()
	run(t, "kubectl -n "+ns+" apply -f - <<'YAML'\n"+manifest+"\nYAML")
}
